# Made from the descriptions in codec/ by `make docs`: change those.
meta:
  id: kafka_leader_epoch_checkpoint
  title: 'Kafka leader epochs of a partition'
  endian: be
  encoding: UTF-8
doc: 'The leader epochs of a partition, and the offset at which each starts.'
seq:
  - id: leader_epoch_checkpoint
    type: leader_epoch_checkpoint
types:
  leader_epoch_checkpoint:
    doc: 'The leader epochs of a partition, and the offset at which each starts.'
    seq:
      - id: version
        type: str
        terminator: 10
        eos-error: false
        valid: '"0"'
        doc: '0'
      - id: count
        type: str
        terminator: 10
        eos-error: false
        doc: 'number of lines that follow'
      - id: entries
        repeat: expr
        repeat-expr: count.to_i
        type: leader_epoch_checkpoint_entry
        doc: 'one line for each entry'
  leader_epoch_checkpoint_entry:
    doc: 'A line.'
    seq:
      - id: epoch
        type: str
        terminator: 32
        eos-error: true
        doc: 'leader epoch'
      - id: start_offset
        type: str
        terminator: 10
        eos-error: false
        doc: 'first offset written in it'
