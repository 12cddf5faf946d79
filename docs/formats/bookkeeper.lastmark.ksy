# Made from the descriptions in codec/ by `make docs`: change those.
meta:
  id: bookkeeper_lastmark
  title: 'BookKeeper lastMark: where the replay of the journal starts'
  endian: be
  encoding: UTF-8
doc: ''
seq:
  - id: last_mark
    type: last_mark
types:
  last_mark:
    seq:
      - id: journal_id
        type: s8be
        doc: 'id of the journal up to which all entries are in entry logs and indexes'
      - id: offset
        type: s8be
        doc: 'byte of that journal at which the replay starts'
      - id: rest
        size-eos: true
        doc: 'ignored'
