# Made from the descriptions in codec/ by `make docs`: change those.
meta:
  id: rocketmq_delay_offsets
  title: 'RocketMQ delayOffset.json: the progress of each delay level'
  endian: be
  encoding: UTF-8
doc: 'JSON as fastjson writes it.'
seq:
  - id: delay_offsets
    type: delay_offsets
types:
  delay_offsets:
    doc: 'JSON as fastjson writes it.'
    seq:
      - id: content
        size-eos: true
        doc: 'JSON'
