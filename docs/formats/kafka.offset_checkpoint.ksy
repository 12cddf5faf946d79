# Made from the descriptions in codec/ by `make docs`: change those.
meta:
  id: kafka_offset_checkpoint
  title: 'Kafka checkpoint of offsets of a log directory'
  endian: be
  encoding: UTF-8
doc: 'One offset for each partition of a log directory.'
seq:
  - id: offset_checkpoint
    type: offset_checkpoint
types:
  offset_checkpoint:
    doc: 'One offset for each partition of a log directory.'
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
        type: offset_checkpoint_entry
        doc: 'one line for each entry'
  offset_checkpoint_entry:
    doc: 'A line.'
    seq:
      - id: topic
        type: str
        terminator: 32
        eos-error: true
        doc: 'topic'
      - id: partition
        type: str
        terminator: 32
        eos-error: true
        doc: 'partition'
      - id: offset
        type: str
        terminator: 10
        eos-error: false
        doc: 'recovery point, high watermark, log start or first dirty offset'
