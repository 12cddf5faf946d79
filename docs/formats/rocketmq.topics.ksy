# Made from the descriptions in codec/ by `make docs`: change those.
meta:
  id: rocketmq_topics
  title: 'RocketMQ topics.json: the topics of a broker'
  endian: be
  encoding: UTF-8
doc: 'JSON as fastjson writes it.'
seq:
  - id: topics
    type: topics
types:
  topics:
    doc: 'JSON as fastjson writes it.'
    seq:
      - id: content
        size-eos: true
        doc: 'JSON'
