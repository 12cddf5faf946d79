# Made from the descriptions in codec/ by `make docs`: change those.
meta:
  id: bookkeeper_cookie
  title: 'BookKeeper VERSION: the identity of a bookie'
  endian: be
  encoding: UTF-8
doc: ''
seq:
  - id: cookie
    type: cookie
types:
  cookie:
    seq:
      - id: layout_version
        type: str
        terminator: 10
        eos-error: false
        doc: '3 or more'
      - id: fields
        size-eos: true
        doc: 'CookieFormat in the text format of Protocol Buffers; three plain lines in layout 3'
