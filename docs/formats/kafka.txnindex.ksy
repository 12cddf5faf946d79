# Made from the descriptions in codec/ by `make docs`: change those.
meta:
  id: kafka_txnindex
  title: 'Kafka index of aborted transactions'
  endian: be
  encoding: UTF-8
doc: 'Stored in the segment that has the marker.'
seq:
  - id: frames
    type: aborted_txn
    repeat: eos
types:
  aborted_txn:
    doc: 'Stored in the segment that has the marker.'
    seq:
      - id: version
        type: s2be
        doc: '0'
      - id: producer_id
        type: s8be
        doc: 'the producer that aborted'
      - id: first_offset
        type: s8be
        doc: 'first offset of the transaction in this partition'
      - id: last_offset
        type: s8be
        doc: 'offset of the ABORT marker'
      - id: last_stable_offset
        type: s8be
        doc: 'first offset of the earliest other open transaction, else last_offset + 1'
