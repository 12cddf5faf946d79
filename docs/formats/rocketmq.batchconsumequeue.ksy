# Made from the descriptions in codec/ by `make docs`: change those.
meta:
  id: rocketmq_batchconsumequeue
  title: 'RocketMQ batch consume queue'
  endian: be
  encoding: UTF-8
doc: 'Units lie side by side: the one of a message is found by binary search on base_offset.'
seq:
  - id: frames
    type: batch_consume_queue_unit
    repeat: eos
types:
  batch_consume_queue_unit:
    doc: 'Units lie side by side: the one of a message is found by binary search on base_offset.'
    seq:
      - id: physical_offset
        type: s8be
        doc: 'place of the message in the commit log'
      - id: size
        type: s4be
        doc: 'bytes of the message'
      - id: tags_code
        type: s8be
        doc: 'hash of the tags'
      - id: store_timestamp
        type: s8be
        doc: 'when the broker stored the message, in milliseconds'
      - id: base_offset
        type: s8be
        doc: 'number of its first message in the queue'
      - id: batch_size
        type: s2be
        doc: 'how many messages it is'
      - id: compacted_offset
        type: s4be
        doc: '-1'
      - id: reserved
        type: s4be
        doc: '0'
