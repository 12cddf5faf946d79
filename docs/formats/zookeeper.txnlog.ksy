# Made from the descriptions in codec/ by `make docs`: change those.
meta:
  id: zookeeper_txnlog
  title: 'ZooKeeper transaction log'
  endian: be
  encoding: UTF-8
doc: 'A transaction log.'
seq:
  - id: txn_log
    type: txn_log
types:
  txn_log:
    doc: 'A transaction log.'
    seq:
      - id: header
        type: file_header
      - id: records
        repeat: until
        repeat-until: '(_io.size - _io.pos) < 12 or _.following == 0'
        type: txn_record
        if: '(_io.size - _io.pos) >= 12 and records_ahead != 0'
        doc: 'the transactions'
      - id: padding
        size-eos: true
        doc: 'preallocated zeros'
    instances:
      records_ahead:
        pos: _io.pos + 8
        type: s4be
        if: '(_io.size - _io.pos) >= 12'
        doc: 'if the list is empty: a length of 0, in preallocated space'
  file_header:
    doc: 'The start of a log. No checksum covers it.'
    seq:
      - id: magic
        type: s4be
        valid: 1514884167
        doc: 'ZKLG'
      - id: version
        type: s4be
        doc: '2; ignored by readers'
      - id: dbid
        type: s8be
        doc: '0; ignored by readers'
  txn_record:
    doc: 'A transaction in a log. No checksum covers its length and end mark.'
    seq:
      - id: checksum
        type: s8be
        doc: 'Adler-32 of the payload, in the lower half'
      - id: payload_length
        type: s4be
        doc: 'length of payload'
      - id: payload
        size: payload_length
        type: txn_log_entry
        doc: 'the transaction'
      - id: eor
        type: u1
        doc: 'end of the record (66 B)'
    instances:
      following:
        pos: _io.pos + 8
        type: s4be
        if: '(_io.size - _io.pos) >= 12'
        doc: 'after the last item: a length of 0, in preallocated space'
  txn_log_entry:
    doc: 'A transaction: TxnHeader, its record, TxnDigest.'
    seq:
      - id: client_id
        type: s8be
        doc: 'the session; 0 if the server itself is the client'
      - id: cxid
        type: s4be
        doc: 'number of the request within the session'
      - id: zxid
        type: s8be
        doc: 'number of the transaction: epoch << 32 | counter'
      - id: time
        type: s8be
        doc: 'time of creation'
      - id: type
        type: s4be
        doc: 'what it does (-11 closeSession, -10 createSession, -1 error, 1 create, 2 delete, 5 setData, 7 setACL, 13 check, 14 multi, 15 create2, 16 reconfig, 19 createContainer, 20 deleteContainer, 21 createTTL)'
      - id: body
        type:
          switch-on: 'type == -11 and ((_io.size - _io.pos) < 4 or ((_io.size - _io.pos) == 12 and body_i32be_0 == 2)) ? -1514864641 : type'
          cases:
            -11: close_session_txn
            -10: create_session_txn
            -1: error_txn
            1: create_txn
            2: delete_txn
            20: delete_txn
            5: set_data_txn
            16: set_data_txn
            7: set_acl_txn
            14: multi_txn
            15: create_txn
            19: create_container_txn
            21: create_ttl_txn
            -1514864641: no_bytes
            _: remaining_bytes
        doc: 'how'
      - id: digest
        type:
          switch-on: '(_io.size - _io.pos) >= 12 ? 1 : 0'
          cases:
            1: txn_digest
        doc: 'of the tree after it'
      - id: rest
        size-eos: true
        doc: 'ignored by readers; usually empty'
    instances:
      body_i32be_0:
        pos: _io.pos
        type: s4be
        if: '(_io.size - _io.pos) >= 4'
        doc: 'the integer 0 bytes after the start of body'
  create_session_txn:
    seq:
      - id: time_out
        type: s4be
        doc: 'milliseconds until it expires'
  error_txn:
    seq:
      - id: err
        type: s4be
        doc: 'why a request failed (-1 SYSTEMERROR, -2 RUNTIMEINCONSISTENCY, -3 DATAINCONSISTENCY, -4 CONNECTIONLOSS, -5 MARSHALLINGERROR, -6 UNIMPLEMENTED, -7 OPERATIONTIMEOUT, -8 BADARGUMENTS, -13 NEWCONFIGNOQUORUM, -14 RECONFIGINPROGRESS, -100 APIERROR, -101 NONODE, -102 NOAUTH, -103 BADVERSION, -108 NOCHILDRENFOREPHEMERALS, -110 NODEEXISTS, -111 NOTEMPTY, -112 SESSIONEXPIRED, -113 INVALIDCALLBACK, -114 INVALIDACL, -115 AUTHFAILED, -118 SESSIONMOVED, -119 NOTREADONLY, -120 EPHEMERALONLOCALSESSION, -121 NOWATCHER, -122 REQUESTTIMEOUT, -123 RECONFIGDISABLED, -124 SESSIONCLOSEDREQUIRESASLAUTH, -125 QUOTAEXCEEDED, -127 THROTTLEDOP)'
  delete_txn:
    seq:
      - id: path_length
        type: s4be
        doc: 'length of path'
      - id: path
        size: 'path_length < 0 ? 0 : path_length'
        type: str
        doc: 'of the node'
  set_data_txn:
    seq:
      - id: path_length
        type: s4be
        doc: 'length of path'
      - id: path
        size: 'path_length < 0 ? 0 : path_length'
        type: str
        doc: 'of the node'
      - id: data_length
        type: s4be
        doc: 'length of data'
      - id: data
        size: 'data_length < 0 ? 0 : data_length'
        doc: 'of the node; null and empty differ'
      - id: version
        type: s4be
        doc: 'version of the data afterwards'
  set_acl_txn:
    seq:
      - id: path_length
        type: s4be
        doc: 'length of path'
      - id: path
        size: 'path_length < 0 ? 0 : path_length'
        type: str
        doc: 'of the node'
      - id: acl_count
        type: s4be
        doc: 'number of acl'
      - id: acl
        repeat: expr
        repeat-expr: 'acl_count < 0 ? 0 : acl_count'
        type: acl
        doc: 'of the node'
      - id: version
        type: s4be
        doc: 'aversion afterwards'
  multi_txn:
    seq:
      - id: txns_count
        type: s4be
        doc: 'number of txns'
      - id: txns
        repeat: expr
        repeat-expr: 'txns_count < 0 ? 0 : txns_count'
        type: txn
        doc: 'all of them are applied, or none'
  create_txn:
    seq:
      - id: path_length
        type: s4be
        doc: 'length of path'
      - id: path
        size: 'path_length < 0 ? 0 : path_length'
        type: str
        doc: 'of the node'
      - id: data_length
        type: s4be
        doc: 'length of data'
      - id: data
        size: 'data_length < 0 ? 0 : data_length'
        doc: 'of the node; null and empty differ'
      - id: acl_count
        type: s4be
        doc: 'number of acl'
      - id: acl
        repeat: expr
        repeat-expr: 'acl_count < 0 ? 0 : acl_count'
        type: acl
        doc: 'of the node'
      - id: ephemeral
        type: u1
        doc: 'whether the node is deleted with the session (0 false, 1 true)'
      - id: parent_cversion
        type: s4be
        if: '(_io.size - _io.pos) >= 4'
        doc: 'cversion of the parent afterwards; -1: incremented'
  create_container_txn:
    seq:
      - id: path_length
        type: s4be
        doc: 'length of path'
      - id: path
        size: 'path_length < 0 ? 0 : path_length'
        type: str
        doc: 'of the node'
      - id: data_length
        type: s4be
        doc: 'length of data'
      - id: data
        size: 'data_length < 0 ? 0 : data_length'
        doc: 'of the node; null and empty differ'
      - id: acl_count
        type: s4be
        doc: 'number of acl'
      - id: acl
        repeat: expr
        repeat-expr: 'acl_count < 0 ? 0 : acl_count'
        type: acl
        doc: 'of the node'
      - id: parent_cversion
        type: s4be
        doc: 'cversion of the parent afterwards; -1: incremented'
  create_ttl_txn:
    seq:
      - id: path_length
        type: s4be
        doc: 'length of path'
      - id: path
        size: 'path_length < 0 ? 0 : path_length'
        type: str
        doc: 'of the node'
      - id: data_length
        type: s4be
        doc: 'length of data'
      - id: data
        size: 'data_length < 0 ? 0 : data_length'
        doc: 'of the node; null and empty differ'
      - id: acl_count
        type: s4be
        doc: 'number of acl'
      - id: acl
        repeat: expr
        repeat-expr: 'acl_count < 0 ? 0 : acl_count'
        type: acl
        doc: 'of the node'
      - id: parent_cversion
        type: s4be
        doc: 'cversion of the parent afterwards; -1: incremented'
      - id: ttl
        type: s8be
        doc: 'milliseconds'
  txn_digest:
    doc: 'Since 3.6, unless zookeeper.digest.enabled is off; never on errors.'
    seq:
      - id: version
        type: s4be
        doc: 'of the digest: 2'
      - id: tree_digest
        type: s8be
        doc: 'of the whole tree after the transaction'
  close_session_txn:
    doc: 'Since 3.6, unless zookeeper.closeSessionTxn.enabled is off: then the transaction has no body.'
    seq:
      - id: paths_to_delete_count
        type: s4be
        doc: 'number of paths_to_delete'
      - id: paths_to_delete
        repeat: expr
        repeat-expr: 'paths_to_delete_count < 0 ? 0 : paths_to_delete_count'
        type: string_s4be
        doc: 'the session''s ephemeral nodes (paths2Delete)'
  create_txn_v0:
    doc: 'Until 3.3; known by its bytes ending early. Read as parent_cversion -1.'
    seq:
      - id: path_length
        type: s4be
        doc: 'length of path'
      - id: path
        size: 'path_length < 0 ? 0 : path_length'
        type: str
        doc: 'of the node'
      - id: data_length
        type: s4be
        doc: 'length of data'
      - id: data
        size: 'data_length < 0 ? 0 : data_length'
        doc: 'of the node; null and empty differ'
      - id: acl_count
        type: s4be
        doc: 'number of acl'
      - id: acl
        repeat: expr
        repeat-expr: 'acl_count < 0 ? 0 : acl_count'
        type: acl
        doc: 'of the node'
      - id: ephemeral
        type: u1
        doc: 'whether the node is deleted with the session (0 false, 1 true)'
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
  txn:
    doc: 'One of the transactions of a multi: a body alone, without header and digest.'
    seq:
      - id: type
        type: s4be
        doc: 'what it does (-11 closeSession, -10 createSession, -1 error, 1 create, 2 delete, 5 setData, 7 setACL, 13 check, 14 multi, 15 create2, 16 reconfig, 19 createContainer, 20 deleteContainer, 21 createTTL)'
      - id: data_length
        type: s4be
        doc: 'length of data'
      - id: data
        size: data_length
        type:
          switch-on: 'type'
          cases:
            -1: error_txn
            1: create_txn
            15: create_txn
            19: create_container_txn
            21: create_ttl_txn
            2: delete_txn
            20: delete_txn
            5: set_data_txn
            13: check_version_txn
        doc: 'how'
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
  check_version_txn:
    seq:
      - id: path_length
        type: s4be
        doc: 'length of path'
      - id: path
        size: 'path_length < 0 ? 0 : path_length'
        type: str
        doc: 'of the node'
      - id: version
        type: s4be
        doc: 'the previous version plus one'
  string_s4be:
    seq:
      - id: value_length
        type: s4be
        doc: 'length of value'
      - id: value
        size: 'value_length < 0 ? 0 : value_length'
        type: str
  remaining_bytes:
    seq:
      - id: data
        size-eos: true
  no_bytes:
    seq: []
