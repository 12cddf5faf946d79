# Made from the descriptions in codec/ by `make docs`: change those.
meta:
  id: leveldb_log
  title: 'LevelDB write-ahead log: write batches'
  endian: le
  encoding: UTF-8
doc: 'Blocks.'
seq:
  - id: log_file
    type: log_file
types:
  log_file:
    doc: 'Blocks.'
    seq:
      - id: blocks
        repeat: eos
        size: '(_io.size - _io.pos) < 32768 ? (_io.size - _io.pos) : 32768'
        type: log_block
  write_batch:
    doc: 'The payload of a log record.'
    seq:
      - id: sequence
        type: u8le
        doc: 'of the first operation; it increases by one per operation'
      - id: count
        type: s4le
        doc: 'number of operations'
      - id: operations
        repeat: eos
        type: operation
        doc: 'up to the end of the record'
  log_block:
    doc: '32 KiB; the last block may be shorter.'
    seq:
      - id: records
        repeat: until
        repeat-until: '(_io.size - _io.pos) < 7'
        type: physical_record
        if: '(_io.size - _io.pos) >= 7'
        doc: 'while there is room for a header'
      - id: trailer
        size-eos: true
        doc: 'zeros, if there is no room for a header'
  operation:
    seq:
      - id: type
        type: u1
        doc: '0 a deletion, 1 a value (0 deletion, 1 value)'
      - id: key_length
        type: uvarint
        doc: 'length of key'
      - id: key
        size: key_length.value
        doc: 'the user key'
      - id: value_length
        type: uvarint
        if: '(type) == 1'
        doc: 'length of value'
      - id: value
        size: value_length.value
        if: '(type) == 1'
        doc: 'the value; a deletion has none, not even a length'
      - id: value_other
        size: 0
        if: '(type) != 1'
        doc: 'the value; a deletion has none, not even a length'
  physical_record:
    doc: 'A physical record of a log or a manifest; it never crosses the end of a block of 32 KiB.'
    seq:
      - id: crc
        type: u4le
        doc: 'masked CRC-32C of the type and the payload'
      - id: length
        type: u2le
        doc: 'bytes of the payload; no checksum covers it'
      - id: type
        type: u1
        doc: 'whether a logical record starts, continues or ends here (0 ZERO, 1 FULL, 2 FIRST, 3 MIDDLE, 4 LAST)'
      - id: payload
        size: length
        type: write_batch
        if: 'type == 1'
        doc: 'all or part of a logical record'
      - id: payload_other
        size: length
        if: 'not (type == 1)'
        doc: 'all or part of a logical record'
  uvarint:
    seq:
      - id: groups
        type: u1
        repeat: until
        repeat-until: '_ < 128'
    instances:
      value:
        value: '(groups.size > 0 ? (groups[0] & 127) * 1 : 0) + (groups.size > 1 ? (groups[1] & 127) * 128 : 0) + (groups.size > 2 ? (groups[2] & 127) * 16384 : 0) + (groups.size > 3 ? (groups[3] & 127) * 2097152 : 0) + (groups.size > 4 ? (groups[4] & 127) * 268435456 : 0)'
