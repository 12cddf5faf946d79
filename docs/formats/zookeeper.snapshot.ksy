# Made from the descriptions in codec/ by `make docs`: change those.
meta:
  id: zookeeper_snapshot
  title: 'ZooKeeper snapshot: the tree, its sessions and ACLs'
  endian: be
  encoding: UTF-8
doc: 'A plain snapshot. A compressed one holds these bytes.'
seq:
  - id: snapshot
    type: snapshot
types:
  snapshot:
    doc: 'A plain snapshot. A compressed one holds these bytes.'
    seq:
      - id: header
        type: file_header
      - id: sessions
        type: sessions
      - id: acls
        type: acls
      - id: nodes
        repeat: until
        repeat-until: '(_io.size - _io.pos) < 76 or _.following == 1'
        type: node
        if: '(_io.size - _io.pos) >= 76 and nodes_ahead != 1'
        doc: 'the tree'
      - id: end
        type: end
      - id: digest
        type:
          switch-on: '(_io.size - _io.pos) >= 33 ? 1 : 0'
          cases:
            1: digest
        doc: 'since 3.6'
      - id: last_processed
        type:
          switch-on: '(_io.size - _io.pos) >= 21 ? 1 : 0'
          cases:
            1: last_processed
        doc: 'since 3.9'
      - id: rest
        size-eos: true
        doc: 'ignored by readers; usually empty'
    instances:
      nodes_ahead:
        pos: _io.pos
        type: s4be
        if: '(_io.size - _io.pos) >= 4'
        doc: 'if the list is empty: a path of one character, "/"'
  node:
    doc: 'One node. Parents come before their children, the root first.'
    seq:
      - id: path_length
        type: s4be
        doc: 'length of path'
      - id: path
        size: 'path_length < 0 ? 0 : path_length'
        type: str
        doc: 'full path; "" is the root'
      - id: data_length
        type: s4be
        doc: 'length of data'
      - id: data
        size: 'data_length < 0 ? 0 : data_length'
        doc: 'the data of the node'
      - id: acl
        type: s8be
        doc: 'number of its list in the ACL table; -1: anyone may do anything'
      - id: stat
        type: stat_persisted
    instances:
      following:
        pos: _io.pos
        type: s4be
        if: '(_io.size - _io.pos) >= 4'
        doc: 'after the last item: a path of one character, "/"'
  file_header:
    seq:
      - id: magic
        contents: [90, 75, 83, 78]
        doc: 'ZKSN'
      - id: version
        type: s4be
        doc: '2; ignored by readers'
      - id: dbid
        type: s8be
        doc: '-1; ignored by readers'
  sessions:
    doc: 'The open sessions.'
    seq:
      - id: sessions_count
        type: s4be
        doc: 'number of sessions'
      - id: sessions
        repeat: expr
        repeat-expr: sessions_count
        type: session
  acls:
    doc: 'The ACL table.'
    seq:
      - id: entries_count
        type: s4be
        doc: 'number of entries'
      - id: entries
        repeat: expr
        repeat-expr: entries_count
        type: acl_entry
  end:
    doc: 'The end of the tree and its seal.'
    seq:
      - id: path_length
        type: s4be
        doc: 'length of path'
      - id: path
        size: 'path_length < 0 ? 0 : path_length'
        type: str
        doc: '"/", which is not the path of a node: the end of the tree'
      - id: checksum
        type: s8be
        doc: 'Adler-32 of all bytes before it'
      - id: mark_length
        type: s4be
        doc: 'length of mark'
      - id: mark
        size: 'mark_length < 0 ? 0 : mark_length'
        type: str
        doc: '"/"'
  digest:
    doc: 'The digest of the tree and its seal. Since 3.6.'
    seq:
      - id: zxid
        type: s8be
        doc: 'the last transaction in the tree when the snapshot was finished'
      - id: digest_version
        type: s4be
        doc: '2'
      - id: digest
        type: s8be
        doc: 'digest of the tree after it'
      - id: checksum
        type: s8be
        doc: 'Adler-32 of all bytes before it'
      - id: mark_length
        type: s4be
        doc: 'length of mark'
      - id: mark
        size: 'mark_length < 0 ? 0 : mark_length'
        type: str
        doc: '"/"'
  last_processed:
    doc: 'The last processed zxid and its seal. Since 3.9.'
    seq:
      - id: last_processed_zxid
        type: s8be
        doc: 'the last transaction in the tree when this was written'
      - id: checksum
        type: s8be
        doc: 'Adler-32 of all bytes before it'
      - id: mark_length
        type: s4be
        doc: 'length of mark'
      - id: mark
        size: 'mark_length < 0 ? 0 : mark_length'
        type: str
        doc: '"/"'
  stat_persisted:
    seq:
      - id: czxid
        type: s8be
        doc: 'zxid of the transaction that created the node'
      - id: mzxid
        type: s8be
        doc: 'zxid of the last change of its data'
      - id: ctime
        type: s8be
        doc: 'when it was created'
      - id: mtime
        type: s8be
        doc: 'when its data was changed last'
      - id: version
        type: s4be
        doc: 'changes of its data'
      - id: cversion
        type: s4be
        doc: 'changes of its children, as it is stored: creations count once, deletions not'
      - id: aversion
        type: s4be
        doc: 'changes of its ACL'
      - id: ephemeral_owner
        type: s8be
        doc: 'the session of an ephemeral node; or the kind of node and its TTL'
      - id: pzxid
        type: s8be
        doc: 'zxid of the last change of its children'
  session:
    seq:
      - id: id
        type: s8be
        doc: 'session id'
      - id: timeout
        type: s4be
        doc: 'milliseconds'
  acl_entry:
    seq:
      - id: id
        type: s8be
        doc: 'the number by which nodes refer to the list'
      - id: acl_count
        type: s4be
        doc: 'number of acl'
      - id: acl
        repeat: expr
        repeat-expr: 'acl_count < 0 ? 0 : acl_count'
        type: acl
        doc: 'the list'
  acl:
    seq:
      - id: perms
        type: s4be
        doc: 'the permissions'
      - id: id
        type: id
        doc: 'to whom'
    instances:
      perms_read:
        value: '(perms >> 0) & 1'
      perms_write:
        value: '(perms >> 1) & 1'
      perms_create:
        value: '(perms >> 2) & 1'
      perms_delete:
        value: '(perms >> 3) & 1'
      perms_admin:
        value: '(perms >> 4) & 1'
  id:
    seq:
      - id: scheme_length
        type: s4be
        doc: 'length of scheme'
      - id: scheme
        size: 'scheme_length < 0 ? 0 : scheme_length'
        type: str
        doc: 'how clients authenticate: world, digest, ip, sasl, x509'
      - id: id_length
        type: s4be
        doc: 'length of id'
      - id: id
        size: 'id_length < 0 ? 0 : id_length'
        type: str
        doc: 'the client, in the form of the scheme'
