// JSON Lines between a test and a program: orders come in on standard input, events go out on standard output.
import { createInterface } from 'node:readline';

export function emit(event) {
  process.stdout.write(JSON.stringify(event) + '\n');
}

// The 2.x SDK names what the 1.x SDK numbers.
const numbers = { REQUEST_TIMEOUT: -32001, CONNECTION_CLOSED: -32000 };

// orders calls handle(order) for every line, without waiting for the one before, and exits at the end of the input.
export function orders(handle) {
  const lines = createInterface({ input: process.stdin });
  lines.on('line', async (line) => {
    const order = JSON.parse(line);
    try {
      emit({ seq: order.seq, ok: true, ...(await handle(order)) });
    } catch (error) {
      emit({ seq: order.seq, ok: false, code: numbers[error.code] ?? (Number.isInteger(error.code) ? error.code : 0), message: String(error.message ?? error) });
    }
  });
  lines.on('close', () => process.exit(0));
}
