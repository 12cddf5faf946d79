# Made from the descriptions in codec/ by `make docs`: change those.
meta:
  id: kafka_quorum_state
  title: 'Kafka vote of a KRaft node'
  endian: be
  encoding: UTF-8
doc: ''
seq:
  - id: quorum_state
    type: quorum_state
types:
  quorum_state:
    seq:
      - id: state
        size-eos: true
        doc: 'JSON of QuorumStateData: the last vote, in one line'
