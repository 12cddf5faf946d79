# Made from the descriptions in codec/ by `make docs`: change those.
meta:
  id: leveldb_manifest
  title: 'LevelDB manifest: version edits'
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
  version_edit:
    doc: 'The payload of a manifest record.'
    seq:
      - id: fields
        repeat: eos
        type: edit_field
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
  edit_field:
    seq:
      - id: tag
        type: uvarint
        doc: 'the field: 1 comparator, 2 log_number, 3 next_file_number, 4 last_sequence, 5 compact_pointer, 6 deleted_file, 7 new_file, 9 prev_log_number'
      - id: body
        type:
          switch-on: 'tag.value'
          cases:
            1: comparator
            2: log_number
            9: prev_log_number
            3: next_file_number
            4: last_sequence
            5: compact_pointer
            6: deleted_file
            7: new_file
        doc: 'the value of the field'
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
        type: version_edit
        if: 'type == 1'
        doc: 'all or part of a logical record'
      - id: payload_other
        size: length
        if: 'not (type == 1)'
        doc: 'all or part of a logical record'
  comparator:
    seq:
      - id: text_length
        type: uvarint
        doc: 'length of text'
      - id: text
        size: text_length.value
        type: str
        doc: 'name of the comparator'
  log_number:
    seq:
      - id: number
        type: uvarlong
        doc: 'the contents of logs with smaller numbers are in tables'
  prev_log_number:
    seq:
      - id: number
        type: uvarlong
        doc: '0, except in files of old versions'
  next_file_number:
    seq:
      - id: number
        type: uvarlong
        doc: 'the next number for a file'
  last_sequence:
    seq:
      - id: number
        type: uvarlong
        doc: 'the last sequence number used'
  compact_pointer:
    seq:
      - id: level
        type: uvarint
        doc: 'level'
      - id: smallest_length
        type: uvarint
        doc: 'length of smallest'
      - id: smallest
        size: smallest_length.value
        type: internal_key
        doc: 'internal key at which its next compaction starts'
  deleted_file:
    seq:
      - id: level
        type: uvarint
        doc: 'level'
      - id: number
        type: uvarlong
        doc: 'number of the file'
  new_file:
    seq:
      - id: level
        type: uvarint
        doc: 'level'
      - id: number
        type: uvarlong
        doc: 'number of the file'
      - id: size
        type: uvarlong
        doc: 'bytes of the file'
      - id: smallest_length
        type: uvarint
        doc: 'length of smallest'
      - id: smallest
        size: smallest_length.value
        type: internal_key
        doc: 'first internal key'
      - id: largest_length
        type: uvarint
        doc: 'length of largest'
      - id: largest
        size: largest_length.value
        type: internal_key
        doc: 'last internal key'
  internal_key:
    doc: 'A user key, and the write that it belongs to.'
    seq:
      - id: user_key
        size: '(_io.size - _io.pos) - 8'
        doc: 'what the user calls the key'
      - id: tag
        type: u8le
        doc: 'sequence << 8 | type; type 0 is a deletion, 1 a value'
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
