# Made from the descriptions in codec/ by `make docs`: change those.
meta:
  id: bookkeeper_journal
  title: 'BookKeeper journal'
  endian: be
  encoding: UTF-8
doc: 'BookKeeper journal.'
seq:
  - id: journal_record_file
    type: journal_record_file
types:
  journal_record_file:
    doc: 'BookKeeper journal.'
    seq:
      - id: header
        type: journal_header
        doc: 'the header of the file'
      - id: header_padding
        size: 'header.version == 6 ? 504 : (header.version == 5 ? 504 : 0)'
        doc: 'zeros'
      - id: frames
        repeat: until
        repeat-until: '(_io.size - _io.pos) < 4 or _.following == 0'
        type: journal_record_frame
        if: '(_io.size - _io.pos) >= 4 and frames_ahead != 0'
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
  journal_header:
    seq:
      - id: magic
        contents: [66, 75, 76, 71]
        doc: 'BKLG'
      - id: version
        type: s4be
        doc: '2 to 6: from 5 on the header is padded to 512 bytes'
  journal_record_frame:
    seq:
      - id: frame
        type:
          switch-on: 'frame_i32be_0 == -256 ? 1 : 0'
          cases:
            1: padding
            0: journal_record
        doc: 'record or padding'
    instances:
      frame_i32be_0:
        pos: _io.pos
        type: s4be
        if: '(_io.size - _io.pos) >= 4'
        doc: 'the integer 0 bytes after the start of frame'
      following:
        pos: _io.pos
        type: s4be
        if: '(_io.size - _io.pos) >= 4'
        doc: 'after the last item: a length of 0'
  padding:
    seq:
      - id: length
        type: s4be
        valid: -256
        doc: '-256'
      - id: pad_length
        type: s4be
        doc: 'bytes that follow, up to a multiple of the alignment'
      - id: filling
        size: 'pad_length - 0'
        doc: 'fills the frame'
  journal_record:
    seq:
      - id: length
        type: s4be
        doc: 'bytes of the record after this field'
      - id: body
        type: journal_record_body
        size: length
  journal_record_body:
    doc: 'The bytes that the size of JournalRecord counts.'
    seq:
      - id: ledger_id
        type: s8be
        doc: 'the ledger'
      - id: entry_id
        type: s8be
        doc: 'the entry; -4096 master key, -8192 fence, -32768 explicit last-add-confirmed'
      - id: body
        size-eos: true
        doc: 'of an entry: last-add-confirmed, length, digest, payload'
