'use strict';
// Reads Avro container files with avsc and prints every record as one line of JSON in which each value shows its exact
// content: integers as "i:…", floats by their bits "f:…", bytes "b:…", strings "s:…", union branches as [name, value].

const avro = require('avsc');
const fzstd = require('fzstd');
const snappyjs = require('snappyjs');

// The two codecs that avsc leaves to its caller. Avro puts a checksum of four bytes behind the snappy data.
const codecs = {
  ...avro.streams.BlockDecoder.defaultCodecs(),
  snappy: (data, done) => done(null, Buffer.from(snappyjs.uncompress(data.subarray(0, data.length - 4)))),
  zstandard: (data, done) => done(null, Buffer.from(fzstd.decompress(data))),
};

// Longs as BigInt, as avsc's documentation of LongType.__with shows: numbers of JavaScript end at 2^53.
const long = avro.types.LongType.__with({
  fromBuffer: (buffer) => buffer.readBigInt64LE(),
  toBuffer: (value) => { const buffer = Buffer.alloc(8); buffer.writeBigInt64LE(value); return buffer; },
  fromJSON: BigInt,
  toJSON: Number,
  isValid: (value) => typeof value === 'bigint',
  compare: (a, b) => (a === b ? 0 : a < b ? -1 : 1),
});

function show(schema, value, named) {
  if (Array.isArray(schema)) {
    if (value === null) return null;
    const [name] = Object.keys(value);
    const branch = schema.find((one) => branchName(one) === name);
    return [name, show(branch, value[name], named)];
  }
  if (typeof schema === 'string' && named.has(schema)) schema = named.get(schema);
  const kind = typeof schema === 'string' ? schema : schema.type;
  if (schema.name) named.set(schema.name, schema);
  switch (kind) {
    case 'boolean': return value;
    case 'int': case 'long': return 'i:' + value;
    case 'float': { const bits = Buffer.alloc(4); bits.writeFloatBE(value); return 'f:' + bits.toString('hex'); }
    case 'double': { const bits = Buffer.alloc(8); bits.writeDoubleBE(value); return 'f:' + bits.toString('hex'); }
    case 'string': case 'enum': return 's:' + value;
    case 'bytes': case 'fixed': return 'b:' + Buffer.from(value).toString('hex');
    case 'array': return value.map((item) => show(schema.items, item, named));
    case 'record': return Object.fromEntries(schema.fields.map((f) => [f.name, show(f.type, value[f.name], named)]));
    default: throw new Error('unexpected type ' + kind);
  }
}

function branchName(schema) {
  const name = typeof schema === 'string' ? schema : schema.name || schema.type;
  const primitive = ['null', 'boolean', 'int', 'long', 'float', 'double', 'bytes', 'string', 'array'];
  return primitive.includes(name) ? name : 'penstock.' + name;
}

// Named types are used before a walk meets their definition when an earlier branch was null.
function collect(schema, named) {
  if (Array.isArray(schema)) { schema.forEach((one) => collect(one, named)); return; }
  if (typeof schema === 'string') return;
  if (schema.name) named.set(schema.name, schema);
  if (schema.items) collect(schema.items, named);
  (schema.fields || []).forEach((f) => collect(f.type, named));
}

function read(path) {
  return new Promise((done, fail) => {
    let schema = null;
    const named = new Map();
    avro.createFileDecoder(path, {
      codecs,
      parseHook: (parsed) => {
        schema = parsed;
        collect(schema, named);
        return avro.Type.forSchema(parsed, {
          typeHook: (one) => (one === 'long' || one.type === 'long' ? long : undefined),
          wrapUnions: true,
        });
      },
    })
      .on('data', (record) => process.stdout.write(JSON.stringify(show(schema, record, named)) + '\n'))
      .on('error', fail)
      .on('end', done);
  });
}

(async () => {
  for (const path of process.argv.slice(2)) await read(path);
})().catch((error) => { console.error(error); process.exit(1); });
