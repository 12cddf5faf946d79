# Made from the descriptions in codec/ by `make docs`: change those.
meta:
  id: rocketmq_timerlog
  title: 'RocketMQ timer log'
  endian: be
  encoding: UTF-8
doc: 'RocketMQ timer log.'
seq:
  - id: timer_unit_file
    type: timer_unit_file
types:
  timer_unit_file:
    doc: 'RocketMQ timer log.'
    seq:
      - id: frames
        repeat: until
        repeat-until: '(_io.size - _io.pos) < 16 or _.following == 0'
        type: timer_unit_frame
        if: '(_io.size - _io.pos) >= 16 and frames_ahead != 0'
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
  timer_unit_frame:
    seq:
      - id: frame
        type:
          switch-on: 'frame_i32be_12 == -875286124 ? 1 : 0'
          cases:
            1: timer_blank
            0: timer_unit
        doc: 'unit or blank'
    instances:
      frame_i32be_12:
        pos: _io.pos + 12
        type: s4be
        if: '(_io.size - _io.pos) >= 16'
        doc: 'the integer 12 bytes after the start of frame'
      following:
        pos: _io.pos
        type: s4be
        if: '(_io.size - _io.pos) >= 4'
        doc: 'after the last item: a length of 0'
  timer_blank:
    doc: 'The last record of a full file.'
    seq:
      - id: unit_size
        type: s4be
        doc: 'bytes up to the end of the file'
      - id: previous
        type: s8be
        doc: '0'
      - id: magic
        type: s4be
        valid: -875286124
        doc: '0xcbd43194'
      - id: filling
        size-eos: true
        doc: 'fills the frame'
  timer_unit:
    seq:
      - id: unit_size
        type: s4be
        doc: '52'
      - id: previous
        type: s8be
        doc: 'offset of the previous unit of the same slot; -1: none'
      - id: magic
        type: s4be
        doc: 'bits: 1 default, 2 roll, 4 delete'
      - id: write_time
        type: s8be
        doc: 'when the unit was written, in milliseconds since 1970'
      - id: delayed_time
        type: s4be
        doc: 'milliseconds from write_time to the delivery'
      - id: physical_offset
        type: s8be
        doc: 'offset of the message in the commit log'
      - id: message_size
        type: s4be
        doc: 'bytes of the message'
      - id: topic_hash
        type: s4be
        doc: 'hash of the real topic'
      - id: reserved
        type: s8be
        doc: '0'
