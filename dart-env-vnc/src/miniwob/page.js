// Prepares a MiniWoB++ page for episodes and gives the stage its functions, in `window.dart`. Runs in
// the page's frame, so it names nothing outside itself. Returns false until the page has begun.
// `width` and `height` are those of the task.
window.preparePage = (width, height) => {
  if (typeof core !== 'object' || core.cover_div === null) return false;
  if (window.dart) return true;

  // The reward, the trace of the clicks and the start cover leave the document, so that nothing of
  // them is ever on the screen. The pages go on writing to them: they are found where they are kept.
  const kept = document.createElement('div');
  for (const id of ['reward-display', 'click-canvas', 'sync-task-cover']) {
    const element = document.getElementById(id);
    if (element) kept.appendChild(element);
  }
  const inDocument = document.getElementById.bind(document);
  document.getElementById = id => inDocument(id) || kept.querySelector('#' + CSS.escape(id));
  // The step limit is the environment's; the page's clock must not end an episode.
  core.EPISODE_MAX_TIME = 1000000;

  // A patch outside the task, in a colour that the driver chooses: a frame that shows it also shows
  // everything that the page did before. It lies below the task because frames are sent downwards.
  const mark = document.createElement('div');
  mark.style.cssText = `position:fixed;left:${width + 4}px;bottom:4px;width:8px;height:8px;` +
    'z-index:2147483647;pointer-events:none';
  document.documentElement.appendChild(mark);
  const paint = colour => { mark.style.background = colour; };

  // What the page has seen of the pointer.
  let ups = 0, at = '', waiting = [];
  const look = event => {
    if (event.type === 'pointerup') ups += 1;
    at = event.clientX + ',' + event.clientY;
    waiting = waiting.filter(check => !check());
  };
  for (const type of ['pointermove', 'pointerup']) addEventListener(type, look, true);
  const until = (condition, millis) => condition() || new Promise(done => {
    const check = () => condition() && (done(true), true);
    waiting.push(check);
    setTimeout(() => { waiting = waiting.filter(other => other !== check); done(false); }, millis);
  });
  const pause = millis => new Promise(done => setTimeout(done, millis));

  // Waits for the images that the page shows for the first time: they would appear at any moment.
  const known = new Set();
  const images = () => {
    const links = [...document.querySelectorAll('*')].flatMap(element =>
      [...getComputedStyle(element).backgroundImage.matchAll(/url\("([^"]+)"\)/g)].map(match => match[1])
        .concat(element.tagName === 'IMG' ? element.src : []));
    const fresh = [...new Set(links)].filter(link => !known.has(link));
    fresh.forEach(link => known.add(link));
    const load = link => {
      const image = new Image();
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

  // What the experts would click, by task. Each looks at the page as a person would: the
  // instruction and the labels.
  const query = selector => document.querySelector('#area ' + selector) || document.querySelector(selector);
  const labelled = (selector, text) =>
    [...document.querySelectorAll(selector)].find(element => element.textContent.trim() === text);
  const words = pattern => (pattern.exec(core.getUtterance()) || [])[1];
  const experts = {
    'click-test': () => query('#subbtn'),
    'click-test-2': () => labelled('#area button', words(/button (\w+)/)),
    'click-widget': () => query(`[data-type="${words(/"(.*)"/)}"]`),
    'focus-text': () => query('#tt'),
    'click-dialog': () => query('.ui-dialog-titlebar-close'),
    'click-button': () => labelled('#area button', words(/"(.*)"/)),
    'click-tab': () => labelled('.ui-tabs-anchor', words(/on (.*)\.$/)),
    'click-option': () => {
      const radio = labelled('#area label', words(/^Select (.*) and click/))?.querySelector('input');
      return radio && !radio.checked ? radio : query('#subbtn');
    },
  };
  // The pixel of an element that a click reaches, the middle if possible: others may cover it.
  const target = element => {
    const box = element.getBoundingClientRect();
    const parts = [0.5, 0.3, 0.7, 0.1, 0.9, 0.02, 0.98];
    for (const part of parts) {
      for (const other of parts) {
        for (const [across, down] of [[part, other], [other, part]]) {
          const x = Math.floor(box.left + box.width * across), y = Math.floor(box.top + box.height * down);
          const inside = x >= 0 && y >= 0 && x < width && y < height;
          if (inside && element.contains(document.elementFromPoint(x, y))) return [x, y];
        }
      }
    }
    return null;
  };
  const state = withElements => ({
    done: WOB_DONE_GLOBAL === true, raw: Number(WOB_RAW_REWARD_GLOBAL) || 0, ups,
    elements: withElements ? elements() : null,
  });

  window.dart = {
    // Waits until the page has seen the pointer at `place`, but not for long.
    parked: place => until(() => at === place, 100),
    // Begins the episode of `seed`.
    reset: async (seed, colour, withElements) => {
      document.activeElement?.blur?.();
      Math.seedrandom(seed);
      core.startEpisodeReal();
      for (let tries = 0; WOB_TASK_READY === false && tries < 500; tries += 1) await pause(10);
      document.activeElement?.blur?.();
      scrollTo(0, 0);
      await images();
      paint(colour);
      return { instruction: core.getUtterance(), ...state(withElements) };
    },
    // Waits until the page has seen `expected` releases of a button, but at most `millis`; then
    // until the handlers of that event have run.
    settle: async (expected, millis, colour, withElements) => {
      await until(() => ups >= expected, millis);
      await pause(0);
      paint(colour);
      return state(withElements);
    },
    state: () => state(false),
    expert: task => {
      const element = experts[task]?.();
      return element ? target(element) : null;
    },
  };
  return true;
};
