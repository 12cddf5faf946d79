# Made from the descriptions in codec/ by `make docs`: change those.
meta:
  id: bookkeeper_dirty
  title: 'BookKeeper DIRTY: exists while a bookie is running, or if it was not stopped cleanly'
  endian: be
  encoding: UTF-8
doc: ''
seq:
  - id: dirty
    type: dirty
types:
  dirty:
    seq:
      - id: content
        size-eos: true
        doc: 'nothing'
