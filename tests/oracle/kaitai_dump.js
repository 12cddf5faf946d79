// node kaitai_dump.js FORMAT.ksy FILE...: what Kaitai Struct's own compiler and runtime make of the files, a line of JSON each.
// Bytes are hexadecimal, numbers beyond what a double holds exactly are text.
const fs = require('fs');
const os = require('os');
const path = require('path');
const yaml = require('js-yaml');
const compiler = require('kaitai-struct-compiler');
const Stream = require('kaitai-struct').KaitaiStream || require('kaitai-struct/KaitaiStream');

function plain(value) {
  if (value instanceof Uint8Array) return Buffer.from(value).toString('hex');
  if (Array.isArray(value)) return value.map(plain);
  if (typeof value === 'bigint') return value.toString();
  if (value === null || typeof value !== 'object') return value;
  const getters = Object.entries(Object.getOwnPropertyDescriptors(Object.getPrototypeOf(value))).filter(([, one]) => one.get);
  const names = new Set([...Object.keys(value), ...getters.map(([name]) => name)]);
  return Object.fromEntries([...names].filter((name) => !name.startsWith('_')).map((name) => [name, plain(value[name])]));
}

async function main([format, ...files]) {
  const source = yaml.load(fs.readFileSync(format, 'utf8'));
  const made = await compiler.compile('javascript', source, null, false);
  const home = fs.mkdtempSync(path.join(os.tmpdir(), 'kaitai-'));
  try {
    for (const [name, text] of Object.entries(made)) fs.writeFileSync(path.join(home, name), text);
    const found = require(path.join(home, Object.keys(made)[0]));
    const Root = typeof found === 'function' ? found : Object.values(found)[0];
    for (const file of files) {
      const data = fs.readFileSync(file);
      const stream = new Stream(data.buffer.slice(data.byteOffset, data.byteOffset + data.length));
      process.stdout.write(JSON.stringify(plain(new Root(stream))) + '\n');
    }
  } finally {
    fs.rmSync(home, { recursive: true });
  }
}

main(process.argv.slice(2)).catch((error) => {
  console.error(error && error.message ? error.message : error);
  process.exit(1);
});
