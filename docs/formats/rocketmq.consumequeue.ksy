# Made from the descriptions in codec/ by `make docs`: change those.
meta:
  id: rocketmq_consumequeue
  title: 'RocketMQ consume queue'
  endian: be
  encoding: UTF-8
doc: 'Unit number `queue_offset` of a queue lies at 20 times that, counted over all files of the queue.'
seq:
  - id: frames
    type: consume_queue_unit
    repeat: eos
types:
  consume_queue_unit:
    doc: 'Unit number `queue_offset` of a queue lies at 20 times that, counted over all files of the queue.'
    seq:
      - id: physical_offset
        type: s8be
        doc: 'place of the message in the commit log'
      - id: size
        type: s4be
        doc: 'bytes of the message'
      - id: tags_code
        type: s8be
        doc: 'hash of the tags; of a delayed message when it is due, in milliseconds; or a place in consumequeue_ext'
