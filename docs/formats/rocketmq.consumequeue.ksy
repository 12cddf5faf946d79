# Made from the descriptions in codec/ by `make docs`: change those.
meta:
  id: rocketmq_consumequeue
  title: 'RocketMQ consume queue'
  endian: be
  encoding: UTF-8
doc: 'The unit of message `queue_offset` starts at byte 20 * `queue_offset`, counted over all files of the queue.'
seq:
  - id: frames
    type: consume_queue_unit
    repeat: eos
types:
  consume_queue_unit:
    doc: 'The unit of message `queue_offset` starts at byte 20 * `queue_offset`, counted over all files of the queue.'
    seq:
      - id: physical_offset
        type: s8be
        doc: 'offset of the message in the commit log'
      - id: size
        type: s4be
        doc: 'bytes of the message'
      - id: tags_code
        type: s8be
        doc: 'hash of the tags; delivery time in milliseconds for a delayed message; or an address in consumequeue_ext'
