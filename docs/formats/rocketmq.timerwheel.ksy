# Made from the descriptions in codec/ by `make docs`: change those.
meta:
  id: rocketmq_timerwheel
  title: 'RocketMQ timer wheel'
  endian: be
  encoding: UTF-8
doc: 'The slot number is the time modulo the number of slots, 1209600.'
seq:
  - id: frames
    type: timer_slot
    repeat: eos
types:
  timer_slot:
    doc: 'The slot number is the time modulo the number of slots, 1209600.'
    seq:
      - id: time
        type: s8be
        doc: 'the time since 1970 in units of timerPrecisionMs, seconds by default; 0: unused slot'
      - id: first_position
        type: s8be
        doc: 'offset of the slot''s oldest unit in the timer log'
      - id: last_position
        type: s8be
        doc: 'offset of its newest unit'
      - id: count
        type: s4be
        doc: 'number of units in the slot'
      - id: magic
        type: s4be
        doc: '0'
