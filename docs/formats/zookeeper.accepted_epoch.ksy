# Made from the descriptions in codec/ by `make docs`: change those.
meta:
  id: zookeeper_accepted_epoch
  title: 'ZooKeeper acceptedEpoch: the last epoch that the server agreed to'
  endian: be
  encoding: UTF-8
doc: 'One line. The rest of the file is ignored.'
seq:
  - id: accepted_epoch
    type: accepted_epoch
types:
  accepted_epoch:
    doc: 'One line. The rest of the file is ignored.'
    seq:
      - id: epoch
        type: str
        terminator: 10
        eos-error: false
        doc: 'the epoch of the last NEWEPOCH that was acknowledged'
