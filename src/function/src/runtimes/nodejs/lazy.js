'use strict';
// Lazily computed properties, as Express's requests and responses have them.

/** Defines a lazily computed property that a handler may overwrite. */
function lazy(prototype, name, compute) {
  Object.defineProperty(prototype, name, {
    configurable: true,
    enumerable: true,
    get() {
      const value = compute(this);
      keep(this, name, value);
      return value;
    },
    set(value) {
      keep(this, name, value);
    },
  });
}

function keep(object, name, value) {
  Object.defineProperty(object, name, { value, writable: true, configurable: true, enumerable: true });
}

module.exports = { lazy };
