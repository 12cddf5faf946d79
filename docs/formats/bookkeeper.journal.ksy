# Made from the descriptions in codec/ by `make docs`: change those.
meta:
  id: bookkeeper_journal
  title: 'BookKeeper journal'
  endian: be
  encoding: UTF-8
doc: ''
seq:
  - id: frames
    type: journal_record
    repeat: eos
types:
  journal_record:
    seq:
      - id: length
        type: s4be
        doc: 'bytes of the record behind this field'
      - id: body
        type: journal_record_body
        size: length
  journal_record_body:
    doc: 'What the size of JournalRecord counts.'
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
  padding:
    seq:
      - id: length
        type: s4be
        valid: -256
        doc: '-256'
      - id: pad_length
        type: s4be
        doc: 'bytes that follow, up to a multiple of the alignment'
  journal_header:
    seq:
      - id: magic
        contents: [66, 75, 76, 71]
        doc: 'BKLG'
      - id: version
        type: s4be
        doc: '4, 5 or 6: from 5 on the header is padded to 512 bytes'
