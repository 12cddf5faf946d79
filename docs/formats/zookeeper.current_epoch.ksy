# Made from the descriptions in codec/ by `make docs`: change those.
meta:
  id: zookeeper_current_epoch
  title: 'ZooKeeper currentEpoch: the epoch that the server is in'
  endian: be
  encoding: UTF-8
doc: 'One line. The rest of the file is ignored.'
seq:
  - id: current_epoch
    type: current_epoch
types:
  current_epoch:
    doc: 'One line. The rest of the file is ignored.'
    seq:
      - id: epoch
        type: str
        terminator: 10
        eos-error: false
        doc: 'the epoch of the last NEWLEADER that was acknowledged'
