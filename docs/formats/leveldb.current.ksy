# Made from the descriptions in codec/ by `make docs`: change those.
meta:
  id: leveldb_current
  title: 'LevelDB CURRENT: the manifest in use'
  endian: be
  encoding: UTF-8
doc: 'One line.'
seq:
  - id: current
    type: current
types:
  current:
    doc: 'One line.'
    seq:
      - id: manifest
        type: str
        terminator: 10
        eos-error: false
        doc: 'name of the manifest in use'
