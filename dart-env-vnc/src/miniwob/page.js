// Prepares a MiniWoB++ page for episodes and gives the stage its functions, in `window.dart`. Runs in
// the page's frame, so it names nothing outside itself. Returns false until the page has begun.
// `width` and `height` are those of the task, `paint` gives the stage's mark a colour, `makeExperts`
// makes the table of experts.
window.preparePage = (width, height, paint, makeExperts) => {
  if (typeof core !== 'object' || core.cover_div === null) return false;
  if (window.dart) return true;

  // The reward, the trace of the clicks and the start cover leave the document, so that nothing of
  // them is ever on the screen. The pages go on writing to them: they are found where they are kept.
  const kept = document.createElement('div');
  for (const id of ['reward-display', 'click-canvas', 'sync-task-cover', 'reward-reason']) {
    const element = document.getElementById(id);
    if (element) kept.appendChild(element);
  }
  const inDocument = document.getElementById.bind(document);
  document.getElementById = id => inDocument(id) || kept.querySelector('#' + CSS.escape(id));
  // The step limit is the environment's; the page's clock must not end an episode. 23 days are the
  // longest that a timer of a page can be set to.
  core.EPISODE_MAX_TIME = 2000000000;

  // The browser's own memory of what was typed would cover the page with proposals, and its keeper of
  // passwords with a question. For the keeper, what was a password field once remains one: others take
  // their place before an episode begins.
  for (const field of document.querySelectorAll('input[type=password]')) {
    const other = document.createElement('input');
    for (const { name, value } of field.attributes) if (name !== 'type') other.setAttribute(name, value);
    other.style.webkitTextSecurity = 'disc';
    field.replaceWith(other);
  }
  const forget = event => { if (event.target instanceof HTMLInputElement) event.target.autocomplete = 'off'; };
  for (const type of ['pointerdown', 'focusin']) addEventListener(type, forget, true);

  // What the page has seen of the input: releases of buttons and of keys that are no modifiers, where
  // the pointer is, and what was copied last.
  let ups = 0, keys = 0, at = '', copied = null, waiting = [];
  const look = event => {
    if (event.type === 'pointerup') ups += 1;
    if (event.type === 'keyup') keys += !/^(Shift|Control|Alt|AltGraph|Meta)$/.test(event.key);
    else at = event.clientX + ',' + event.clientY;
    waiting = waiting.filter(check => !check());
  };
  const noteCopy = () => {
    const field = document.activeElement;
    copied = typeof field?.selectionStart === 'number'
      ? field.value.slice(field.selectionStart, field.selectionEnd) : String(getSelection());
  };
  const listen = view => {
    for (const type of ['pointermove', 'pointerup', 'keyup']) view.addEventListener(type, look, true);
  };
  listen(window);
  addEventListener('copy', noteCopy, true);
  // Input inside a frame of the page is seen by that frame alone.
  for (const inner of document.querySelectorAll('iframe')) {
    inner.addEventListener('load', () => {
      try { listen(inner.contentWindow); } catch { /* It was led to another site. */ }
    });
  }
  const until = (condition, millis) => condition() || new Promise(done => {
    const check = () => condition() && (done(true), true);
    waiting.push(check);
    setTimeout(() => { waiting = waiting.filter(other => other !== check); done(false); }, millis);
  });
  const pause = millis => new Promise(done => setTimeout(done, millis));

  // Waits for the images that the page shows for the first time, and for those that its style sheet
  // keeps for later: they would appear at any moment, and move what is beside them. They are kept.
  const known = new Map();
  const urls = text => [...text.matchAll(/url\("([^"]+)"\)/g)].map(match => match[1]);
  const sheets = [...document.querySelectorAll('style')].flatMap(({ sheet }) => [...sheet?.cssRules ?? []])
    .flatMap(rule => urls(rule.cssText)).map(link => new URL(link, document.baseURI).href);
  const images = () => {
    const shown = [...document.querySelectorAll('*')].flatMap(element => {
      const { backgroundImage, content } = getComputedStyle(element);
      return urls(backgroundImage + content).concat(element.tagName === 'IMG' ? element.src : []);
    });
    const fresh = [...new Set([...shown, ...sheets])].filter(link => !known.has(link));
    const load = link => {
      const image = new Image();
      known.set(link, image);
      image.src = link;
      return image.decode().catch(() => {});
    };
    return fresh.length && Promise.race([Promise.all(fresh.map(load)), pause(2000)]);
  };

  // Visible text and where it is, for reading labels.
  const role = element => {
    const tag = element.tagName.toLowerCase();
    if (element.closest('button')) return 'button';
    if (element.closest('.ui-tabs-nav')) return 'tab';
    if (element.closest('.ui-dialog')) return 'dialog';
    if (tag === 'textarea') return 'text-field';
    if (tag === 'li' || tag === 'option') return 'list-item';
    if (tag !== 'input') return 'label';
    const types = { checkbox: 'checkbox', radio: 'radio', range: 'slider', button: 'button', submit: 'button' };
    return types[element.type] || 'text-field';
  };
  const entry = (element, text, box) => ({
    role: role(element), text: text.trim().slice(0, 200),
    bounds: {
      x: Math.floor(box.left), y: Math.floor(box.top),
      width: Math.max(0, Math.round(box.width)), height: Math.max(0, Math.round(box.height)),
    },
  });
  const elements = () => {
    const found = [];
    const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT | NodeFilter.SHOW_ELEMENT);
    while (walker.nextNode() && found.length < 256) {
      const node = walker.currentNode;
      if (node.nodeType === Node.ELEMENT_NODE) {
        if (/^(INPUT|TEXTAREA)$/.test(node.tagName)) found.push(entry(node, node.value === 'on' ? '' : node.value, node.getBoundingClientRect()));
      } else if (node.data.trim() && !/^(SCRIPT|STYLE|TEXTAREA)$/.test(node.parentElement.tagName)) {
        const range = document.createRange();
        range.selectNodeContents(node);
        found.push(entry(node.parentElement, node.data, range.getBoundingClientRect()));
      }
    }
    return found.filter(({ bounds }) => bounds.width > 0 && bounds.height > 0);
  };

  // A task's words; some pages add what their parts are.
  const instruction = () => {
    const said = core.getUtterance();
    return String(typeof said === 'object' && said !== null ? said.utterance : said).slice(0, 4096);
  };
  let experts = null;
  const state = withElements => ({
    done: WOB_DONE_GLOBAL === true, raw: Number(WOB_RAW_REWARD_GLOBAL) || 0, ups, keys,
    elements: withElements ? elements() : null,
  });

  window.dart = {
    // Waits until the page has seen the pointer at `place`, but not for long.
    parked: place => until(() => at === place, 100),
    // Begins the episode of `seed`, drawn from the tasks of `mode` (`train` or `test`).
    reset: async (seed, mode, colour, withElements) => {
      document.activeElement?.blur?.();
      copied = null;
      Math.seedrandom(seed);
      core.setDataMode(mode);
      core.startEpisodeReal();
      for (let tries = 0; WOB_TASK_READY === false; tries += 1) {
        if (tries === 500) throw new Error('the task does not get ready');
        await pause(10);
      }
      document.activeElement?.blur?.();
      scrollTo(0, 0);
      await images();
      paint(colour);
      return { instruction: instruction(), ...state(withElements) };
    },
    // Waits until the page has seen `expectedUps` releases of a button and `expectedKeys` of keys,
    // but at most `millis`; then until the handlers of the last event have run.
    settle: async (expectedUps, expectedKeys, millis, colour, withElements) => {
      await until(() => ups >= expectedUps && keys >= expectedKeys, millis);
      await pause(0);
      paint(colour);
      return state(withElements);
    },
    state: () => state(false),
    expert: task => {
      experts ??= makeExperts(width, height, { instruction, at: () => at, copied: () => copied });
      return experts(task);
    },
  };
  return true;
};
