# Made from the descriptions in codec/ by `make docs`: change those.
meta:
  id: rocketmq_consumer_offsets
  title: 'RocketMQ consumerOffset.json: the progress of each consumer group'
  endian: be
  encoding: UTF-8
doc: 'JSON as fastjson writes it.'
seq:
  - id: consumer_offsets
    type: consumer_offsets
types:
  consumer_offsets:
    doc: 'JSON as fastjson writes it.'
    seq:
      - id: content
        size-eos: true
        doc: 'JSON'
