# Made from the descriptions in codec/ by `make docs`: change those.
meta:
  id: kafka_log
  title: 'Kafka log segment: record batches, or messages of magic 0 and 1'
  endian: be
  encoding: UTF-8
doc: 'A segment of a partition.'
seq:
  - id: log_segment
    type: log_segment
types:
  log_segment:
    doc: 'A segment of a partition.'
    seq:
      - id: frames
        repeat: until
        repeat-until: '(_io.size - _io.pos) < 20'
        type: log_frame
        if: '(_io.size - _io.pos) >= 20'
        doc: 'batches, and messages of magic 0 and 1'
      - id: rest
        size-eos: true
        doc: 'what is left: usually zeros'
  record_batch:
    doc: 'A record batch of Kafka 0.11 or later: a header of 61 bytes, then the records.'
    seq:
      - id: base_offset
        type: s8be
        doc: 'offset of the first record; not covered by the checksum'
      - id: batch_length
        type: s4be
        doc: 'bytes that follow; not covered by the checksum'
      - id: body
        type: record_batch_body
        size: batch_length
  record_batch_body:
    doc: 'The bytes that the size of RecordBatch counts.'
    seq:
      - id: partition_leader_epoch
        type: s4be
        doc: 'of the leader that appended it, -1 for none; not covered by the checksum'
      - id: magic
        type: s1
        valid: 2
        doc: 'not covered by the checksum'
      - id: crc
        type: u4be
        doc: 'CRC-32C of all that follows'
      - id: attributes
        type: s2be
      - id: last_offset_delta
        type: s4be
        doc: 'last offset of the batch minus base_offset; survives compaction'
      - id: base_timestamp
        type: s8be
        doc: 'that of the first record, or the delete horizon'
      - id: max_timestamp
        type: s8be
        doc: 'largest of the records, or the time of the append'
      - id: producer_id
        type: s8be
        doc: '-1 for none'
      - id: producer_epoch
        type: s2be
        doc: '-1 for none'
      - id: base_sequence
        type: s4be
        doc: 'sequence number of the first record, -1 for none'
      - id: records_count
        type: s4be
        doc: 'records present: compaction may leave fewer, even none'
      - id: records
        repeat: expr
        repeat-expr: records_count
        type: record
        if: '(attributes & 7) == 0'
        doc: 'records one after the other, or a compressed stream of them'
      - id: records_other
        size-eos: true
        if: '(attributes & 7) != 0'
        doc: 'records one after the other, or a compressed stream of them'
    instances:
      attributes_compression:
        value: '(attributes >> 0) & 7'
        doc: 'how the records are compressed, as one stream; 0 none, 1 gzip, 2 snappy, 3 lz4, 4 zstd'
      attributes_timestamp_type:
        value: '(attributes >> 3) & 1'
        doc: 'append time: every record has max_timestamp; 0 CREATE_TIME, 1 LOG_APPEND_TIME'
      attributes_is_transactional:
        value: '(attributes >> 4) & 1'
        doc: 'the batch is part of a transaction of its producer'
      attributes_is_control:
        value: '(attributes >> 5) & 1'
        doc: 'the records are markers of the system, not data'
      attributes_has_delete_horizon:
        value: '(attributes >> 6) & 1'
        doc: 'base_timestamp is when tombstones and markers may be removed'
  record:
    doc: 'One record of a batch of magic 2.'
    seq:
      - id: length
        type: varint
        doc: 'bytes that follow'
      - id: body
        type: record_body
        size: length.value
  record_body:
    doc: 'The bytes that the size of Record counts.'
    seq:
      - id: attributes
        type: s1
        doc: 'unused'
      - id: timestamp_delta
        type: varlong
        doc: 'milliseconds from base_timestamp'
      - id: offset_delta
        type: varint
        doc: 'from base_offset; gaps are left by compaction'
      - id: key_length
        type: varint
        doc: 'length of key'
      - id: key
        size: 'key_length.value < 0 ? 0 : key_length.value'
        doc: 'null and empty differ'
      - id: value_length
        type: varint
        doc: 'length of value'
      - id: value
        size: 'value_length.value < 0 ? 0 : value_length.value'
        doc: 'null is a tombstone in a compacted topic'
      - id: headers_count
        type: varint
        doc: 'number of headers'
      - id: headers
        repeat: expr
        repeat-expr: headers_count.value
        type: header
  message:
    doc: 'A message of Kafka before 0.11. If it is compressed, its value is a set of messages: with absolute offsets in magic 0, with offsets that count from the first one in magic 1.'
    seq:
      - id: offset
        type: s8be
        doc: 'of a wrapper: of its last inner message; not covered by the checksum'
      - id: message_size
        type: s4be
        doc: 'bytes that follow; not covered by the checksum'
      - id: body
        type: message_body
        size: message_size
  message_body:
    doc: 'The bytes that the size of Message counts.'
    seq:
      - id: crc
        type: u4be
        doc: 'CRC-32 of all that follows'
      - id: magic
        type: s1
        doc: '0, or 1 with a timestamp'
      - id: attributes
        type: u1
      - id: timestamp
        type: s8be
        if: '(magic) == 1'
        doc: 'of a wrapper: the largest of its inner messages, or the time of the append'
      - id: key_length
        type: s4be
        doc: 'length of key'
      - id: key
        size: 'key_length < 0 ? 0 : key_length'
        doc: 'null and empty differ'
      - id: value_length
        type: s4be
        doc: 'length of value'
      - id: value
        size: 'value_length < 0 ? 0 : value_length'
        doc: 'null is a tombstone in a compacted topic'
    instances:
      attributes_compression:
        value: '(attributes >> 0) & 7'
        doc: 'how the value is compressed; 0 none, 1 gzip, 2 snappy, 3 lz4'
      attributes_timestamp_type:
        value: '(attributes >> 3) & 1'
        doc: 'magic 1, append time: that of a wrapper is every inner message''s; 0 CREATE_TIME, 1 LOG_APPEND_TIME'
  inner_message:
    doc: 'A message in a wrapper.'
    seq:
      - id: offset
        type: s8be
        doc: 'of a wrapper: of its last inner message; not covered by the checksum'
      - id: message_size
        type: s4be
        doc: 'bytes that follow; not covered by the checksum'
      - id: body
        type: inner_message_body
        size: message_size
  inner_message_body:
    doc: 'The bytes that the size of InnerMessage counts.'
    seq:
      - id: crc
        type: u4be
        doc: 'CRC-32 of all that follows'
      - id: magic
        type: s1
        doc: '0, or 1 with a timestamp'
      - id: attributes
        type: u1
      - id: timestamp
        type: s8be
        if: '(magic) == 1'
        doc: 'of a wrapper: the largest of its inner messages, or the time of the append'
      - id: key_length
        type: s4be
        doc: 'length of key'
      - id: key
        size: 'key_length < 0 ? 0 : key_length'
        doc: 'null and empty differ'
      - id: value_length
        type: s4be
        doc: 'length of value'
      - id: value
        size: 'value_length < 0 ? 0 : value_length'
        doc: 'null is a tombstone in a compacted topic'
    instances:
      attributes_compression:
        value: '(attributes >> 0) & 7'
        doc: 'how the value is compressed; 0 none, 1 gzip, 2 snappy, 3 lz4'
      attributes_timestamp_type:
        value: '(attributes >> 3) & 1'
        doc: 'magic 1, append time: that of a wrapper is every inner message''s; 0 CREATE_TIME, 1 LOG_APPEND_TIME'
  control_record_key:
    doc: 'The key of a record in a control batch.'
    seq:
      - id: version
        type: s2be
        doc: '0; later ones may be longer'
      - id: type
        type: s2be
        doc: 'what the record marks (0 ABORT, 1 COMMIT, 2 LEADER_CHANGE, 3 SNAPSHOT_HEADER, 4 SNAPSHOT_FOOTER, 5 KRAFT_VERSION, 6 KRAFT_VOTERS)'
  end_txn_marker:
    doc: 'The value of an ABORT or COMMIT record.'
    seq:
      - id: version
        type: s2be
        doc: '0; later ones may be longer'
      - id: coordinator_epoch
        type: s4be
        doc: 'of the transaction coordinator that ended the transaction'
  log_frame:
    seq:
      - id: frame
        type:
          switch-on: 'frame_u32be_16 < 33554432 ? 1 : 0'
          cases:
            1: message
            0: record_batch
        doc: 'a message or a batch, by its magic'
    instances:
      frame_u32be_16:
        pos: _io.pos + 16
        type: u4be
        if: '(_io.size - _io.pos) >= 20'
        doc: 'the integer 16 bytes after the start of frame'
  header:
    doc: 'One header of a record. Order and duplicates are kept.'
    seq:
      - id: key_length
        type: varint
        doc: 'length of key'
      - id: key
        size: key_length.value
        type: str
        doc: 'UTF-8 by convention; may be empty, never null'
      - id: value_length
        type: varint
        doc: 'length of value'
      - id: value
        size: 'value_length.value < 0 ? 0 : value_length.value'
        doc: 'any bytes'
  varint:
    seq:
      - id: groups
        type: u1
        repeat: until
        repeat-until: '_ < 128'
    instances:
      raw:
        value: '(groups.size > 0 ? (groups[0] & 127) * 1 : 0) + (groups.size > 1 ? (groups[1] & 127) * 128 : 0) + (groups.size > 2 ? (groups[2] & 127) * 16384 : 0) + (groups.size > 3 ? (groups[3] & 127) * 2097152 : 0) + (groups.size > 4 ? (groups[4] & 127) * 268435456 : 0)'
      value:
        value: 'raw % 2 == 0 ? raw / 2 : -((raw + 1) / 2)'
  varlong:
    seq:
      - id: groups
        type: u1
        repeat: until
        repeat-until: '_ < 128'
    instances:
      raw:
        value: '(groups.size > 0 ? (groups[0] & 127) * 1 : 0) + (groups.size > 1 ? (groups[1] & 127) * 128 : 0) + (groups.size > 2 ? (groups[2] & 127) * 16384 : 0) + (groups.size > 3 ? (groups[3] & 127) * 2097152 : 0) + (groups.size > 4 ? (groups[4] & 127) * 268435456 : 0) + (groups.size > 5 ? (groups[5] & 127) * 34359738368 : 0) + (groups.size > 6 ? (groups[6] & 127) * 4398046511104 : 0) + (groups.size > 7 ? (groups[7] & 127) * 562949953421312 : 0) + (groups.size > 8 ? (groups[8] & 127) * 72057594037927936 : 0) + (groups.size > 9 ? (groups[9] & 127) * 72057594037927936 * 128 : 0)'
      value:
        value: 'raw % 2 == 0 ? raw / 2 : -((raw + 1) / 2)'
