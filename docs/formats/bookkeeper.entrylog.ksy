# Made from the descriptions in codec/ by `make docs`: change those.
meta:
  id: bookkeeper_entrylog
  title: 'BookKeeper entry log'
  endian: be
  encoding: UTF-8
doc: 'BookKeeper entry log.'
seq:
  - id: entry_file
    type: entry_file
types:
  entry_file:
    doc: 'BookKeeper entry log.'
    seq:
      - id: header
        type: entry_log_header
        doc: 'the header of the file'
      - id: header_padding
        size: 'header.version == 1 ? 1004 : (header.version == 0 ? 1004 : 0)'
        doc: 'zeros'
      - id: frames
        repeat: until
        repeat-until: '(_io.size - _io.pos) < 12 or _.following == 0'
        type: entry_frame
        if: '(_io.size - _io.pos) >= 12 and frames_ahead != 0'
        doc: 'the frames'
      - id: rest
        size-eos: true
        doc: 'what is left: usually zeros'
    instances:
      frames_ahead:
        pos: _io.pos
        type: s4be
        if: '(_io.size - _io.pos) >= 4'
        doc: 'if the list is empty: a length of 0'
  entry_log_header:
    seq:
      - id: magic
        contents: [66, 75, 76, 79]
        doc: 'BKLO'
      - id: version
        type: s4be
        doc: '0: without a ledgers map; 1: may have one'
      - id: ledgers_map_offset
        type: s8be
        doc: 'byte of the file at which the ledgers map starts; 0: no map'
      - id: ledgers_count
        type: s4be
        doc: 'number of ledgers in the map'
  entry_frame:
    seq:
      - id: frame
        type:
          switch-on: '(frame_u32be_0 >> 24) == 240 ? 2 : (frame_i32be_4 == -1 and frame_u32be_8 == 4294967295 ? 1 : 0)'
          cases:
            1: ledger_minus_one
            0: entry
            2: fill_byte
        doc: 'entry, fill byte or marker'
    instances:
      frame_u32be_0:
        pos: _io.pos
        type: u4be
        if: '(_io.size - _io.pos) >= 4'
        doc: 'the integer 0 bytes after the start of frame'
      frame_i32be_4:
        pos: _io.pos + 4
        type: s4be
        if: '(_io.size - _io.pos) >= 8'
        doc: 'the integer 4 bytes after the start of frame'
      frame_u32be_8:
        pos: _io.pos + 8
        type: u4be
        if: '(_io.size - _io.pos) >= 12'
        doc: 'the integer 8 bytes after the start of frame'
      following:
        pos: _io.pos
        type: s4be
        if: '(_io.size - _io.pos) >= 4'
        doc: 'after the last item: a length of 0'
  ledger_minus_one:
    doc: 'A batch of the ledgers map (entry id -2), or a filler.'
    seq:
      - id: entry_size
        type: s4be
        doc: 'bytes of the frame after this field'
      - id: ledger_id
        type: s8be
        valid: -1
        doc: '-1'
      - id: filling
        size: 'entry_size - 8'
        doc: 'fills the frame'
  entry:
    seq:
      - id: entry_size
        type: s4be
        doc: 'bytes of the entry after this field'
      - id: body
        type: entry_body
        size: entry_size
  entry_body:
    doc: 'The bytes that the size of Entry counts.'
    seq:
      - id: ledger_id
        type: s8be
        doc: 'the ledger'
      - id: entry_id
        type: s8be
        doc: 'the entry'
      - id: last_add_confirmed
        type: s8be
        doc: 'the highest entry known to be acknowledged when this one was sent'
      - id: length
        type: s8be
        doc: 'bytes of all payloads of the ledger up to this one'
      - id: body
        size-eos: true
        doc: 'digest (0, 4, 8 or 20 bytes) and payload'
  fill_byte:
    seq:
      - id: filling
        size: 1
        doc: '0xf0'
