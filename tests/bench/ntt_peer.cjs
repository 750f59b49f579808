// Times ffjavascript's Fr.fft, for `make bench-prover`: node ntt_peer.cjs MODULES CURVE LOG_N ROUNDS -> seconds, one a line.
const [modules, name, logN, rounds] = process.argv.slice(2);
const { getCurveFromName } = require(`${modules}/ffjavascript`);

(async () => {
  const curve = await getCurveFromName(name);
  const n = 2 ** Number(logN);
  const values = new Uint8Array(n * curve.Fr.n8);
  let x = curve.Fr.e(3);
  for (let i = 0; i < n; i++) {
    values.set(x, i * curve.Fr.n8);
    x = curve.Fr.add(curve.Fr.square(x), curve.Fr.one);
  }
  for (let i = 0; i < Number(rounds) + 1; i++) {
    const begun = process.hrtime.bigint();
    await curve.Fr.fft(values);
    const seconds = Number(process.hrtime.bigint() - begun) / 1e9;
    if (i) console.log(seconds); // the first call starts the workers
  }
  await curve.terminate();
})();
