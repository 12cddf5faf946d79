# Made from the descriptions in codec/ by `make docs`: change those.
meta:
  id: bookkeeper_bookiestatus
  title: 'BookKeeper BOOKIE_STATUS: whether the bookie accepts writes'
  endian: be
  encoding: UTF-8
doc: ''
seq:
  - id: bookie_status
    type: bookie_status
types:
  bookie_status:
    seq:
      - id: status
        type: str
        terminator: 10
        eos-error: false
        doc: 'layout version, mode, time in milliseconds since 1970, whether set by hand'
