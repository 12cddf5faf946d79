# Made from the descriptions in codec/ by `make docs`: change those.
meta:
  id: rocketmq_consumequeue_ext
  title: 'RocketMQ consume queue extension'
  endian: be
  encoding: UTF-8
doc: 'RocketMQ consume queue extension.'
seq:
  - id: consume_queue_ext_unit_file
    type: consume_queue_ext_unit_file
types:
  consume_queue_ext_unit_file:
    doc: 'RocketMQ consume queue extension.'
    seq:
      - id: frames
        repeat: until
        repeat-until: '(_io.size - _io.pos) < 2 or _.following == 0'
        type: consume_queue_ext_unit_frame
        if: '(_io.size - _io.pos) >= 2 and frames_ahead != 0'
        doc: 'the frames'
      - id: rest
        size-eos: true
        doc: 'what is left: usually zeros'
    instances:
      frames_ahead:
        pos: _io.pos
        type: s2be
        if: '(_io.size - _io.pos) >= 2'
        doc: 'if the list is empty: a length of 0'
  consume_queue_ext_unit_frame:
    seq:
      - id: frame
        type:
          switch-on: 'frame_i32be_0 == -1 ? 1 : 0'
          cases:
            1: end
            0: consume_queue_ext_unit
        doc: 'unit or end'
    instances:
      frame_i32be_0:
        pos: _io.pos
        type: s4be
        if: '(_io.size - _io.pos) >= 4'
        doc: 'the integer 0 bytes after the start of frame'
      following:
        pos: _io.pos
        type: s2be
        if: '(_io.size - _io.pos) >= 2'
        doc: 'after the last item: a length of 0'
  end:
    seq:
      - id: unit_size
        type: s2be
        valid: -1
        doc: '-1: the next unit is in the next file'
      - id: filling
        size-eos: true
        doc: 'fills the frame'
  consume_queue_ext_unit:
    seq:
      - id: unit_size
        type: s2be
        doc: 'bytes of the unit'
      - id: tags_code
        type: s8be
        doc: 'hash of the tags'
      - id: store_timestamp
        type: s8be
        doc: 'when the broker stored the message, in milliseconds since 1970'
      - id: filter_bit_map_length
        type: s2be
        doc: 'length of filter_bit_map'
      - id: filter_bit_map
        size: filter_bit_map_length
        doc: 'bits of the SQL filters that the message passes'
