# Made from the descriptions in codec/ by `make docs`: change those.
meta:
  id: zookeeper_myid
  title: 'ZooKeeper myid: the number of the server in its quorum'
  endian: be
  encoding: UTF-8
doc: 'One line. The rest of the file is ignored.'
seq:
  - id: myid
    type: myid
types:
  myid:
    doc: 'One line. The rest of the file is ignored.'
    seq:
      - id: myid
        type: str
        terminator: 10
        eos-error: false
        doc: '1 to 255'
