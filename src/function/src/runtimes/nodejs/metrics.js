'use strict';
// Metrics of calls, failures and durations in Prometheus's text format.

const BUCKETS = [0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10];
const CONTENT_TYPE = 'text/plain; charset=utf-8; version=0.0.4';

class Metrics {
  constructor(moduleName) {
    this.moduleName = moduleName;
    this.methods = new Map(); // bounded, because the parser rejects unknown methods
  }

  of(method) {
    let found = this.methods.get(method);
    if (found === undefined) {
      found = { calls: 0, failures: 0, sum: 0, count: 0, buckets: new Array(BUCKETS.length).fill(0) };
      this.methods.set(method, found);
    }
    return found;
  }

  called(method) {
    this.of(method).calls += 1;
  }

  failed(method) {
    this.of(method).failures += 1;
  }

  took(method, seconds) {
    const of = this.of(method);
    of.sum += seconds;
    of.count += 1;
    const bucket = BUCKETS.findIndex((limit) => seconds <= limit);
    if (bucket !== -1) of.buckets[bucket] += 1;
  }

  text() {
    const label = (method) => `method="${this.moduleName.replace(/[\\"\n]/g, '_')}-${method}"`;
    const lines = [
      '# HELP function_duration_seconds Duration of user function in seconds',
      '# TYPE function_duration_seconds histogram',
    ];
    for (const [method, of] of this.methods) {
      let total = 0;
      BUCKETS.forEach((limit, at) => {
        total += of.buckets[at];
        lines.push(`function_duration_seconds_bucket{le="${limit}",${label(method)}} ${total}`);
      });
      lines.push(`function_duration_seconds_bucket{le="+Inf",${label(method)}} ${of.count}`);
      lines.push(`function_duration_seconds_sum{${label(method)}} ${of.sum}`);
      lines.push(`function_duration_seconds_count{${label(method)}} ${of.count}`);
    }
    const counter = (name, help, read) => {
      lines.push(`# HELP ${name} ${help}`, `# TYPE ${name} counter`);
      for (const [method, of] of this.methods) lines.push(`${name}{${label(method)}} ${read(of)}`);
    };
    counter('function_calls_total', 'Number of calls to user function', (of) => of.calls);
    counter('function_failures_total', 'Number of exceptions in user function', (of) => of.failures);
    return `${lines.join('\n')}\n`;
  }
}

module.exports = { Metrics, CONTENT_TYPE };
