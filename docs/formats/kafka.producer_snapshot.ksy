# Made from the descriptions in codec/ by `make docs`: change those.
meta:
  id: kafka_producer_snapshot
  title: 'Kafka producer state snapshot'
  endian: be
  encoding: UTF-8
doc: 'Producer state as of an offset.'
seq:
  - id: producer_snapshot
    type: producer_snapshot
types:
  producer_snapshot:
    doc: 'Producer state as of an offset.'
    seq:
      - id: version
        type: s2be
        valid: 1
        doc: '1'
      - id: crc
        type: u4be
        doc: 'CRC-32C of all that follows'
      - id: count
        type: s4be
        doc: 'number of entries'
      - id: entries
        repeat: expr
        repeat-expr: count
        type: producer_entry
        doc: 'in the order of a java.util.HashMap'
  producer_entry:
    doc: 'The state of one producer.'
    seq:
      - id: producer_id
        type: s8be
        doc: 'the producer'
      - id: producer_epoch
        type: s2be
        doc: 'its epoch'
      - id: last_sequence
        type: s4be
        doc: 'sequence number of its last record, -1 for none'
      - id: last_offset
        type: s8be
        doc: 'offset of its last data record, -1 for none'
      - id: offset_delta
        type: s4be
        doc: 'last minus first offset of its last batch'
      - id: timestamp
        type: s8be
        doc: 'of its last batch or marker, in milliseconds'
      - id: coordinator_epoch
        type: s4be
        doc: 'of the coordinator that ended its last transaction, -1 for none'
      - id: current_txn_first_offset
        type: s8be
        doc: 'first offset of the transaction it has open, -1 for none'
