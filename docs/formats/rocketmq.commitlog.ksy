# Made from the descriptions in codec/ by `make docs`: change those.
meta:
  id: rocketmq_commitlog
  title: 'RocketMQ commit log'
  endian: be
  encoding: UTF-8
doc: 'RocketMQ commit log.'
seq:
  - id: message_file
    type: message_file
types:
  message_file:
    doc: 'RocketMQ commit log.'
    seq:
      - id: frames
        repeat: until
        repeat-until: '(_io.size - _io.pos) < 8 or _.following == 0'
        type: message_frame
        if: '(_io.size - _io.pos) >= 8 and frames_ahead != 0'
        doc: 'the frames'
      - id: rest
        size-eos: true
        doc: 'what is left: usually zeros'
    instances:
      frames_ahead:
        pos: _io.pos
        type: s4be
        if: '(_io.size - _io.pos) >= 4'
        doc: 'if the list is empty: a length of 0'
  message_frame:
    seq:
      - id: frame
        type:
          switch-on: 'frame_u32be_4 == 3419681172 ? 1 : 0'
          cases:
            1: blank
            0: message
        doc: 'message or blank'
    instances:
      frame_u32be_4:
        pos: _io.pos + 4
        type: u4be
        if: '(_io.size - _io.pos) >= 8'
        doc: 'the integer 4 bytes after the start of frame'
      following:
        pos: _io.pos
        type: s4be
        if: '(_io.size - _io.pos) >= 4'
        doc: 'after the last item: a length of 0'
  blank:
    doc: 'The last record of a full file, written if the next message did not fit. The bytes after it are undefined.'
    seq:
      - id: total_size
        type: s4be
        doc: 'bytes up to the end of the file'
      - id: magic_code
        type: u4be
        valid: "3419681172"
        doc: '0xcbd43194'
      - id: filling
        size-eos: true
        doc: 'fills the frame'
  message:
    doc: 'Only the body has a checksum without __CRC32#. Brokers do not write that property by default.'
    seq:
      - id: total_size
        type: s4be
        doc: 'bytes of the message'
      - id: magic_code
        type: u4be
        doc: '0xdaa320a7: V1; 0xdaa320ab: V2, for topics of more than 127 characters'
      - id: body_crc
        type: u4be
        doc: 'CRC-32 of the body alone, in 31 bits'
      - id: queue_id
        type: s4be
        doc: 'queue of the topic'
      - id: flag
        type: s4be
        doc: 'application-defined flag'
      - id: queue_offset
        type: s8be
        doc: 'offset of the message in its queue'
      - id: physical_offset
        type: s8be
        doc: 'offset of the message in the commit log: the number in the file name plus the byte where it starts'
      - id: sys_flag
        type: s4be
        doc: 'flags of the stored form'
      - id: born_timestamp
        type: s8be
        doc: 'when the producer created the message'
      - id: born_host
        type:
          switch-on: 'sys_flag & 16'
          cases:
            0: host_v4
            16: host_v6
        doc: 'the producer'
      - id: store_timestamp
        type: s8be
        doc: 'when the broker stored the message'
      - id: store_host
        type:
          switch-on: 'sys_flag & 32'
          cases:
            0: host_v4
            32: host_v6
        doc: 'the broker'
      - id: reconsume_times
        type: s4be
        doc: 'number of delivery retries'
      - id: prepared_transaction_offset
        type: s8be
        doc: 'of a commit: offset of the prepared message'
      - id: body_length
        type: s4be
        doc: 'size of the stored body in bytes'
      - id: body
        size: body_length
        doc: 'the stored body'
      - id: topic_length
        type: s2be
        if: '(magic_code) == 3668123819'
        doc: 'length of topic'
      - id: topic
        size: topic_length
        type: str
        if: '(magic_code) == 3668123819'
        doc: 'the topic'
      - id: topic_other_length
        type: s1
        if: '(magic_code) != 3668123819'
        doc: 'length of topic_other'
      - id: topic_other
        size: topic_other_length
        type: str
        if: '(magic_code) != 3668123819'
        doc: 'the topic'
      - id: properties_length
        type: s2be
        doc: 'length of properties'
      - id: properties
        size: properties_length
        type: str
        doc: 'repeated: name 0x01 value 0x02'
    instances:
      sys_flag_compressed:
        value: '(sys_flag >> 0) & 1'
        doc: 'the body is compressed'
      sys_flag_multi_tags:
        value: '(sys_flag >> 1) & 1'
      sys_flag_transaction:
        value: '(sys_flag >> 2) & 3'
        doc: '0 none, 1 prepared, 2 commit, 3 rollback'
      sys_flag_born_host_v6:
        value: '(sys_flag >> 4) & 1'
        doc: 'born_host has 20 bytes'
      sys_flag_store_host_v6:
        value: '(sys_flag >> 5) & 1'
        doc: 'store_host has 20 bytes'
      sys_flag_need_unwrap:
        value: '(sys_flag >> 6) & 1'
      sys_flag_inner_batch:
        value: '(sys_flag >> 7) & 1'
      sys_flag_compression_type:
        value: '(sys_flag >> 8) & 7'
        doc: '0 zlib, 1 LZ4, 2 Zstd, 3 zlib'
  host_v4:
    seq:
      - id: address
        size: 4
        doc: 'IPv4 address'
      - id: port
        type: s4be
        doc: 'port'
  host_v6:
    seq:
      - id: address
        size: 16
        doc: 'IPv6 address'
      - id: port
        type: s4be
        doc: 'port'
