# Made from the descriptions in codec/ by `make docs`: change those.
meta:
  id: bookkeeper_lastid
  title: 'BookKeeper lastId: the newest entry log of a directory'
  endian: be
  encoding: UTF-8
doc: ''
seq:
  - id: last_id
    type: last_id
types:
  last_id:
    seq:
      - id: log_id
        type: str
        terminator: 10
        eos-error: false
        doc: 'in hexadecimal'
