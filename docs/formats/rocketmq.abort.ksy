# Made from the descriptions in codec/ by `make docs`: change those.
meta:
  id: rocketmq_abort
  title: 'RocketMQ abort: the process id of a broker that is running or was not stopped cleanly'
  endian: be
  encoding: UTF-8
doc: ''
seq:
  - id: abort
    type: abort
types:
  abort:
    seq:
      - id: pid
        type: str
        terminator: 10
        eos-error: false
        doc: 'the process id'
