"use strict";
// Numbers, times and keys as people read them, and elements made of them. Text always becomes
// text: nothing here or below makes markup of a string.

const byId = (id) => document.getElementById(id);

/** An element with properties, attributes (data-*, aria-*, role, scope) and children. */
function make(tag, properties = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) {
    if (/^(data-|aria-|role$|scope$)/.test(name)) element.setAttribute(name, value);
    else element[name] = value;
  }
  element.append(...children);
  return element;
}

/** Sets text only where it differs, so that screen readers and selections are left alone. */
function setText(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

const wholeNumber = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });
const smallNumber = new Intl.NumberFormat("en", { maximumFractionDigits: 1 });
const shortNumber = new Intl.NumberFormat("en", { notation: "compact", maximumFractionDigits: 1 });

function rate(value) {
  if (value === null || value === undefined) return "–";
  return (Math.abs(value) < 10 ? smallNumber : wholeNumber).format(value);
}

function percent(share) {
  if (share === null || share === undefined) return "–";
  return smallNumber.format(share * 100) + " %";
}

/** Share of the requests that took none to the upstream: of a sample, or of a proxy. */
function savedShare({ served_per_second: served, saved_per_second: saved }) {
  return served > 0 ? saved / served : null;
}

function clock(at) {
  return new Date(at).toLocaleTimeString("en-GB");
}

function ago(at) {
  const seconds = Math.max(0, Math.round((Date.now() - Date.parse(at)) / 1000));
  if (seconds < 60) return seconds + " s ago";
  if (seconds < 3600) return Math.floor(seconds / 60) + " min ago";
  if (seconds < 86400) return Math.floor(seconds / 3600) + " h ago";
  return Math.floor(seconds / 86400) + " d ago";
}

/** A key to look at: what cannot be seen, or would turn the text around, is spelled out. */
function shownKey(key) {
  if (key === "") return "(empty key)";
  return key.replace(/[\p{Cc}\p{Cf}\p{Zl}\p{Zp}]/gu, (letter) =>
    "\\u{" + letter.codePointAt(0).toString(16) + "}");
}

/** A key as one segment of a path. What is not UTF-8 comes percent-encoded already; what a
 * browser would take for a step in the path goes by its hash. */
function keyAddress(item) {
  if (item.key_base64 !== undefined) return item.key;
  if (["", ".", ".."].includes(item.key)) return "hash:" + item.key_hash;
  return encodeURIComponent(item.key);
}

/** The address of a key that somebody typed. */
function typedAddress(key) {
  return encodeURIComponent(key);
}

const mitigations = {
  local_cache: "local cache",
  coalesce: "coalesce",
  split: "split",
  copies: "copies",
  replica_reads: "replica reads",
};

function mitigationText(item) {
  const name = mitigations[item.mitigation_type] ?? item.mitigation_type;
  return item.split_factor > 1 ? `${name} × ${item.split_factor}` : name;
}
