# Made from the descriptions in codec/ by `make docs`: change those.
meta:
  id: leveldb_table
  title: 'LevelDB table: sorted blocks of keys and values'
  endian: le
  encoding: UTF-8
doc: 'A table.'
seq:
  - id: table
    type: table
types:
  table:
    doc: 'A table.'
    seq:
      - id: blocks
        size: '(_io.size - _io.pos) - 48'
        doc: 'blocks, adjacent; the footer and the index give their positions'
      - id: footer
        type: footer
        doc: 'where the index is'
  stored_data_block:
    doc: 'Keys and values, in the order of the keys.'
    seq:
      - id: contents
        size: '(_io.size - _io.pos) - 5'
        doc: 'the block, compressed or not'
      - id: type
        type: u1
        doc: 'compression of the block (0 none, 1 snappy, 2 zstd, or zlib in Mojang''s fork, 4 zlib_raw)'
      - id: crc
        type: u4le
        doc: 'masked CRC-32C of the stored block and of the type'
    instances:
      contents_parsed:
        pos: 0
        size: '_io.size - 5'
        type: data_block
        if: 'type == 0'
        doc: 'contents, if it is not compressed'
  stored_index_block:
    doc: 'For each data block its handle, and a key that is not before its last one.'
    seq:
      - id: contents
        size: '(_io.size - _io.pos) - 5'
        doc: 'the block, compressed or not'
      - id: type
        type: u1
        doc: 'compression of the block (0 none, 1 snappy, 2 zstd, or zlib in Mojang''s fork, 4 zlib_raw)'
      - id: crc
        type: u4le
        doc: 'masked CRC-32C of the stored block and of the type'
    instances:
      contents_parsed:
        pos: 0
        size: '_io.size - 5'
        type: index_block
        if: 'type == 0'
        doc: 'contents, if it is not compressed'
  stored_metaindex_block:
    doc: 'Names and handles of further blocks.'
    seq:
      - id: contents
        size: '(_io.size - _io.pos) - 5'
        doc: 'the block, compressed or not'
      - id: type
        type: u1
        doc: 'compression of the block (0 none, 1 snappy, 2 zstd, or zlib in Mojang''s fork, 4 zlib_raw)'
      - id: crc
        type: u4le
        doc: 'masked CRC-32C of the stored block and of the type'
    instances:
      contents_parsed:
        pos: 0
        size: '_io.size - 5'
        type: metaindex_block
        if: 'type == 0'
        doc: 'contents, if it is not compressed'
  stored_filter_block:
    doc: 'A Bloom filter for each 2 KiB of the file, of the keys of the data blocks that start there.'
    seq:
      - id: contents
        size: '(_io.size - _io.pos) - 5'
        doc: 'the block, compressed or not'
      - id: type
        type: u1
        doc: 'compression of the block (0 none, 1 snappy, 2 zstd, or zlib in Mojang''s fork, 4 zlib_raw)'
      - id: crc
        type: u4le
        doc: 'masked CRC-32C of the stored block and of the type'
    instances:
      contents_parsed:
        pos: 0
        size: '_io.size - 5'
        type: filter_block
        if: 'type == 0'
        doc: 'contents, if it is not compressed'
  footer:
    doc: 'The last 48 bytes of a table. No checksum covers them.'
    seq:
      - id: handles
        size: 40
        type: footer_handles
        doc: 'handles of the metaindex and of the index, and padding that may be anything'
      - id: magic
        contents: [87, 251, 128, 139, 36, 117, 71, 219]
        doc: '57 fb 80 8b 24 75 47 db'
  data_block:
    doc: 'Keys and values, in the order of the keys.'
    seq:
      - id: entries
        size: '((_io.size - _io.pos) - (4 * num_restarts_ahead)) - 4'
        type: data_block_entries
        doc: 'in the order of the keys'
      - id: restarts
        size: '(_io.size - _io.pos) - 4'
        type: data_block_restarts
        doc: 'positions of entries that share no bytes with the previous key'
      - id: num_restarts
        type: u4le
        doc: 'number of restart points'
    instances:
      num_restarts_ahead:
        pos: _io.size - 4
        type: u4le
        doc: 'num_restarts, read before the field that depends on it'
  data_block_entries:
    seq:
      - id: items
        type: data_block_entry
        repeat: eos
  data_block_restarts:
    seq:
      - id: items
        type: restart
        repeat: eos
  index_block:
    doc: 'For each data block its handle, and a key that is not before its last one.'
    seq:
      - id: entries
        size: '((_io.size - _io.pos) - (4 * num_restarts_ahead)) - 4'
        type: index_block_entries
        doc: 'in the order of the keys'
      - id: restarts
        size: '(_io.size - _io.pos) - 4'
        type: index_block_restarts
        doc: 'positions of entries that share no bytes with the previous key'
      - id: num_restarts
        type: u4le
        doc: 'number of restart points'
    instances:
      num_restarts_ahead:
        pos: _io.size - 4
        type: u4le
        doc: 'num_restarts, read before the field that depends on it'
  index_block_entries:
    seq:
      - id: items
        type: index_block_entry
        repeat: eos
  index_block_restarts:
    seq:
      - id: items
        type: restart
        repeat: eos
  metaindex_block:
    doc: 'Names and handles of further blocks.'
    seq:
      - id: entries
        size: '((_io.size - _io.pos) - (4 * num_restarts_ahead)) - 4'
        type: metaindex_block_entries
        doc: 'in the order of the keys'
      - id: restarts
        size: '(_io.size - _io.pos) - 4'
        type: metaindex_block_restarts
        doc: 'positions of entries that share no bytes with the previous key'
      - id: num_restarts
        type: u4le
        doc: 'number of restart points'
    instances:
      num_restarts_ahead:
        pos: _io.size - 4
        type: u4le
        doc: 'num_restarts, read before the field that depends on it'
  metaindex_block_entries:
    seq:
      - id: items
        type: metaindex_block_entry
        repeat: eos
  metaindex_block_restarts:
    seq:
      - id: items
        type: restart
        repeat: eos
  filter_block:
    doc: 'A Bloom filter for each 2 KiB of the file, of the keys of the data blocks that start there.'
    seq:
      - id: filters
        size: 'array_offset_ahead'
        doc: 'Bloom filters, one after the other; the last byte of each is its number of probes'
      - id: offsets
        size: '(_io.size - _io.pos) - 5'
        type: filter_block_offsets
        doc: 'where each filter starts'
      - id: array_offset
        type: u4le
        doc: 'where the offsets of the filters start'
      - id: base_lg
        type: u1
        doc: '11: each filter is for 2 KiB of the file'
    instances:
      array_offset_ahead:
        pos: _io.size - 5
        type: u4le
        doc: 'array_offset, read before the field that depends on it'
  filter_block_offsets:
    seq:
      - id: items
        type: u4le
        repeat: eos
  footer_handles:
    doc: 'The first 40 bytes of the footer.'
    seq:
      - id: metaindex_handle
        type: block_handle
        doc: 'position of the metaindex block'
      - id: index_handle
        type: block_handle
        doc: 'position of the index block'
      - id: padding
        size-eos: true
        doc: 'may be anything'
    instances:
      metaindex_handle_block:
        io: _root._io
        pos: metaindex_handle.offset.value
        size: metaindex_handle.size.value + 5
        type: stored_metaindex_block
        doc: 'the structure that metaindex_handle points to'
      index_handle_block:
        io: _root._io
        pos: index_handle.offset.value
        size: index_handle.size.value + 5
        type: stored_index_block
        doc: 'the structure that index_handle points to'
  block_handle:
    seq:
      - id: offset
        type: uvarlong
        doc: 'byte of the file'
      - id: size
        type: uvarlong
        doc: 'bytes of the stored block, without its trailer'
  data_block_entry:
    doc: 'A key and a value.'
    seq:
      - id: shared
        type: uvarint
        doc: 'bytes that the key shares with the previous key; 0 at a restart point'
      - id: non_shared
        type: uvarint
        doc: 'bytes of the key that follow'
      - id: value_length
        type: uvarint
        doc: 'bytes of the value'
      - id: key_delta
        size: non_shared.value
        doc: 'the rest of the key; sequence and type are its last eight bytes'
      - id: value
        size: value_length.value
        doc: 'the value'
  restart:
    seq:
      - id: offset
        type: u4le
        doc: 'position of an entry that shares no bytes with the previous key'
  index_block_entry:
    doc: 'A key and a value.'
    seq:
      - id: shared
        type: uvarint
        doc: 'bytes that the key shares with the previous key; 0 at a restart point'
      - id: non_shared
        type: uvarint
        doc: 'bytes of the key that follow'
      - id: value_length
        type: uvarint
        doc: 'bytes of the value'
      - id: key_delta
        size: non_shared.value
        doc: 'the rest of the key; sequence and type are its last eight bytes'
      - id: value
        size: value_length.value
        type: block_handle
        doc: 'the handle of a block'
    instances:
      value_block:
        io: _root._io
        pos: value.offset.value
        size: value.size.value + 5
        type: stored_data_block
        doc: 'the structure that value points to'
  metaindex_block_entry:
    doc: 'A key and a value.'
    seq:
      - id: shared
        type: uvarint
        doc: 'bytes that the key shares with the previous key; 0 at a restart point'
      - id: non_shared
        type: uvarint
        doc: 'bytes of the key that follow'
      - id: value_length
        type: uvarint
        doc: 'bytes of the value'
      - id: key_delta
        size: non_shared.value
        doc: 'the rest of the key; sequence and type are its last eight bytes'
      - id: value
        size: value_length.value
        type: block_handle
        doc: 'the handle of a block'
    instances:
      value_block:
        io: _root._io
        pos: value.offset.value
        size: value.size.value + 5
        type: stored_filter_block
        doc: 'the structure that value points to'
  uvarint:
    seq:
      - id: groups
        type: u1
        repeat: until
        repeat-until: '_ < 128'
    instances:
      value:
        value: '(groups.size > 0 ? (groups[0] & 127) * 1 : 0) + (groups.size > 1 ? (groups[1] & 127) * 128 : 0) + (groups.size > 2 ? (groups[2] & 127) * 16384 : 0) + (groups.size > 3 ? (groups[3] & 127) * 2097152 : 0) + (groups.size > 4 ? (groups[4] & 127) * 268435456 : 0)'
  uvarlong:
    seq:
      - id: groups
        type: u1
        repeat: until
        repeat-until: '_ < 128'
    instances:
      value:
        value: '(groups.size > 0 ? (groups[0] & 127) * 1 : 0) + (groups.size > 1 ? (groups[1] & 127) * 128 : 0) + (groups.size > 2 ? (groups[2] & 127) * 16384 : 0) + (groups.size > 3 ? (groups[3] & 127) * 2097152 : 0) + (groups.size > 4 ? (groups[4] & 127) * 268435456 : 0) + (groups.size > 5 ? (groups[5] & 127) * 34359738368 : 0) + (groups.size > 6 ? (groups[6] & 127) * 4398046511104 : 0) + (groups.size > 7 ? (groups[7] & 127) * 562949953421312 : 0) + (groups.size > 8 ? (groups[8] & 127) * 72057594037927936 : 0) + (groups.size > 9 ? (groups[9] & 127) * 72057594037927936 * 128 : 0)'
