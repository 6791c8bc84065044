// How each task is solved: a table of tasks, made of the moves in the first half. Runs in the page's
// frame. An expert has no memory: it looks at the page and says the next action, or null. It reads the
// document, of which a person sees the same on the screen, with exceptions that are marked.
// `seen` tells what the page has seen: the instruction, where the pointer is, what was copied last.
window.makeExperts = (width, height, seen) => {
  // Looking.
  const one = given => typeof given === 'string' ? document.querySelector(given) : given ?? null;
  const all = selector => [...document.querySelectorAll(selector)];
  const text = element => element.textContent.replace(/\s+/g, ' ').trim();
  const visible = element => element.getClientRects().length > 0 && getComputedStyle(element).visibility !== 'hidden';
  const labelled = (selector, wanted) => all(selector).find(element => text(element) === wanted && visible(element));
  const said = pattern => (pattern.exec(seen.instruction()) || []).slice(1);
  const quoted = n => [...seen.instruction().matchAll(/"([^"]*)"/g)].map(match => match[1])[n];
  const centre = element => {
    const box = one(element).getBoundingClientRect();
    return { x: box.left + box.width / 2, y: box.top + box.height / 2 };
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
          if (inside && element.contains(document.elementFromPoint(x, y))) return { x, y };
        }
      }
    }
    return null;
  };

  // Single actions.
  const whole = ({ x, y }) => ({ x: Math.round(x), y: Math.round(y) });
  const type = words => ({ action: 'type', text: String(words) });
  const press = key => ({ action: 'press', key });
  const hotkey = (...keys) => ({ action: 'hotkey', keys });
  const wait = millis => ({ action: 'wait', millis });
  const clickAt = (place, more) => ({ action: 'click', at: whole(place), ...more });
  const dragTo = (from, to) => ({ action: 'drag_to', from: whole(from), to: whole(to) });
  // Turns the wheel over whatever scrolls `element`, or waits for what moves.
  const bring = element => {
    const scrolls = box => box.scrollHeight > box.clientHeight + 1 &&
      (box === document.scrollingElement || /auto|scroll/.test(getComputedStyle(box).overflowY));
    const at = centre(element);
    for (let box = element.parentElement; box; box = box.parentElement) {
      if (!scrolls(box)) continue;
      const { left, right, top, bottom } = box === document.scrollingElement
        ? { left: 0, right: width, top: 0, bottom: height } : box.getBoundingClientRect();
      const up = at.y < Math.max(top, 0) + 8, down = at.y > Math.min(bottom, height) - 8;
      if (!up && !down) continue;
      const over = { x: (left + Math.min(right, width)) / 2, y: (Math.max(top, 0) + Math.min(bottom, height)) / 2 };
      const far = Math.abs(at.y - over.y);
      return {
        action: 'scroll', at: whole(over), direction: up ? 'up' : 'down',
        // A notch is 120 pixels. Many more would leap to and fro over what is sought.
        notches: Math.min(10, Math.max(1, Math.round(far / 120))),
      };
    }
    return visible(element) ? wait(200) : null;
  };

  // Moves: each says the action that is still needed, or null once all is as it should be.
  const inTurn = (...moves) => {
    for (const move of moves) {
      const action = typeof move === 'function' ? move() : move;
      if (action) return action;
    }
    return null;
  };
  const click = (given, more) => () => {
    const element = one(given);
    if (!element) return null;
    const at = target(element);
    return at ? clickAt(at, more) : bring(element);
  };
  const check = (given, wanted = true) => () => one(given).checked === wanted ? null : click(given)();
  const fill = (given, value) => () => {
    const field = one(given);
    if (field.value === String(value)) return null;
    if (document.activeElement !== field) return click(field)();
    const selected = typeof field.selectionStart === 'number'
      ? field.selectionEnd - field.selectionStart === field.value.length : String(getSelection()) === field.value;
    return field.value === '' || selected ? type(value) : hotkey('ctrl', 'a');
  };
  // A date or time: its parts are typed one after another, the first from the left end.
  const fillParts = (given, keys) => () => {
    const field = one(given), box = field.getBoundingClientRect();
    if (field.value !== '') return null;
    return document.activeElement === field ? type(keys) : clickAt({ x: box.left + 12, y: centre(field).y });
  };
  const choose = (given, wanted) => () => {
    const list = one(given);
    if (list.options[list.selectedIndex]?.text === wanted) return null;
    return document.activeElement === list ? type(wanted + '\n') : click(list)();
  };
  // Drags the handle near, then goes step by step.
  const slide = (given, wanted) => () => {
    const slider = $(given), [value, min, max] = ['value', 'min', 'max'].map(name => Number(slider.slider('option', name)));
    if (value === wanted) return null;
    const box = slider[0].getBoundingClientRect(), handle = slider.find('.ui-slider-handle')[0];
    const across = slider.slider('option', 'orientation') === 'horizontal', length = across ? box.width : box.height;
    const near = Math.abs(value - wanted) <= Math.max(1, 3 * (max - min) / length);
    if (near && document.activeElement === handle) return press(wanted > value ? 'right' : 'left');
    const from = centre(handle), part = (wanted - min) / (max - min);
    return dragTo(from, across ? { x: box.left + part * length, y: from.y } : { x: from.x, y: box.bottom - part * length });
  };
  const pickDate = (given, date) => () => {
    const field = one(given), calendar = one('#ui-datepicker-div');
    if (field.value === date) return null;
    if (!calendar || !visible(calendar) || calendar.children.length === 0) return click(field)();
    const [month, day, year] = date.split('/').map(Number);
    const names = ['January', 'February', 'March', 'April', 'May', 'June', 'July', 'August', 'September', 'October', 'November', 'December'];
    const shown = Number(text(one('.ui-datepicker-year'))) * 12 + names.indexOf(text(one('.ui-datepicker-month')));
    const ahead = year * 12 + month - 1 - shown;
    if (ahead) return click(ahead < 0 ? '.ui-datepicker-prev' : '.ui-datepicker-next')();
    return click(labelled('.ui-datepicker-calendar a', String(day)))();
  };
  const toEnd = (given, down = true) => () => {
    const box = one(given), rest = down ? box.scrollHeight - box.clientHeight - box.scrollTop : box.scrollTop;
    return rest < 4 ? null
      : { action: 'scroll', at: whole(centre(box)), direction: down ? 'down' : 'up', notches: Math.min(20, Math.ceil(rest / 40)) };
  };
  // Through the clipboard.
  const copyTo = (from, to) => () => {
    const source = one(from), field = one(to);
    if (field.value === source.value) return null;
    if (seen.copied() === source.value) return document.activeElement === field ? hotkey('ctrl', 'v') : click(field)();
    if (document.activeElement !== source) return click(source)();
    return source.selectionEnd - source.selectionStart === source.value.length ? hotkey('ctrl', 'c') : hotkey('ctrl', 'a');
  };
  // What is not on this page of a book is looked for on the next one.
  const browse = (found, pages, open) => () => {
    if (found) return click(found)();
    return click(pages[(pages.findIndex(page => page.classList.contains(open)) + 1) % pages.length])();
  };
  const submit = click('#subbtn');

  // Groups of tasks that are solved alike.
  const boxes = wanted => () => inTurn(...all('#area label').map(label => check(label.querySelector('input'), wanted(text(label)))), submit);
  const named = words => words.split(', ');
  const links = (pages, open) => () => browse(labelled('.alink', quoted(0)), all(pages), open)();
  const dates = () => inTurn(pickDate('#datepicker', said(/(\d\d\/\d\d\/\d{4})/)[0]), submit);
  const enter = value => () => inTurn(fill('#tt', value()), submit);
  const answer = value => () => inTurn(fill('#math-answer', value()), submit);
  const login = () => inTurn(click('#popup-cancel'), fill('#username', quoted(0)), fill('#password', quoted(1)), submit);
  const movie = () => {
    const [genre, name, year] = said(/for (.*) movies directed by (.*) from year (\d+)/);
    const values = [[/genre/i, genre], [/director/i, name], [/year|date/i, year]];
    const fields = all('#area input').map(field => {
      const label = text(field.closest('p, .row, tr, .field, .ui-entry'));
      return fill(field, values.find(([pattern]) => pattern.test(label))[1]);
    });
    return inTurn(...fields, click(all('#area button, #area .final, #area .ui-submit')[0]));
  };
  const complete = () => {
    const item = ui_utils.COUNTRIES.find(name => name.startsWith(quoted(0)) && name.endsWith(quoted(1) ?? ''));
    const field = one('#tags');
    // The list of proposals would cover the button.
    return inTurn(fill(field, item), () => document.activeElement === field ? press('tab') : null, submit);
  };
  // The mail by `from` is deleted, starred, answered with words or forwarded to somebody.
  const mail = ({ task, by, message, to }) => {
    const thread = all('#main .email-thread').find(mail => text(mail.querySelector('.email-sender')) === by);
    if (task === 'delete' || task === 'star') return click(thread.querySelector(task === 'star' ? '.star' : '.trash'))();
    if (one('#reply')) return inTurn(fill('#reply-text', message), click('#send-reply'));
    if (one('#forward')) return inTurn(fill('#forward .forward-sender', to), click('#send-forward'));
    if (one('#email')) return click(task === 'reply' ? '#email .email-reply' : '#email .email-forward')();
    return click(thread.querySelector('.email-sender'))();
  };
  const inbox = () => {
    const [by] = said(/email by (\S+) and/), [to] = said(/forward that email to (\S+)\.$/);
    const task = to ? 'forward' : said(/(reply|trash|star)/)[0].replace('trash', 'delete');
    return mail({ task, by, to, message: quoted(0) });
  };
  // These instructions come with their parts; in words of the held-out kind they do not.
  const annotated = () => {
    const parts = core.getUtterance().fields;
    return parts ? mail({ task: 'forward', ...parts }) : null;
  };
  const post = user => all('.media').filter(media => text(media.querySelector('.username')) === user);
  const posts = (button, user, count) => {
    const buttons = post(user).map(media => media.querySelector('.' + button.toLowerCase()));
    const missing = Math.min(count, buttons.length) - buttons.filter(mark => mark.classList.contains('active')).length;
    return inTurn(missing > 0 && click(buttons.find(mark => !mark.classList.contains('active'))), click('#submitRow button'));
  };
  // Shapes are as their descriptions say: large or small, a colour, a kind or a character.
  const shapeOf = shape => {
    const glyph = shape.tagName === 'text' ? text(shape) : null;
    const names = { rect: 'rectangle', circle: 'circle', polygon: 'triangle' };
    const size = glyph ? parseFloat(shape.getAttribute('font-size')) : shape.getBBox().width;
    const kind = glyph ? (/\d/.test(glyph) ? 'digit' : 'letter') : 'shape';
    return { size: size > 15 ? 'large' : 'small', colour: shape.getAttribute('fill'), kind, name: glyph ?? names[shape.tagName] };
  };
  const fits = (shape, words) => {
    const { size, colour, kind, name } = shapeOf(shape);
    const what = words.split(' ');
    const last = what.pop();
    return what.every(word => word === size || word === colour) && ['item', kind, name].includes(last);
  };
  const shapesLike = words => all('#area_svg > *').filter(shape => fits(shape, words));
  // A point is put where the task wants it, unless there is one.
  const putPoint = place => () => inTurn(() => one('#blue-circle') ? null : clickAt(place()), submit);
  const away = (from, direction, reach = 40) => {
    const length = Math.hypot(direction.x, direction.y), box = one('#svg-grid').getBoundingClientRect();
    const place = sign => ({ x: from.x + sign * direction.x / length * reach, y: from.y + sign * direction.y / length * reach });
    const inside = ({ x, y }) => x > box.left + 1 && x < Math.min(box.right, width) - 1 && y > box.top + 1 && y < box.bottom - 1;
    return { place, inside };
  };
  const bisector = () => {
    const vertex = centre('.init-blue'), unit = all('.init-black').map(point => {
      const { x, y } = centre(point), far = Math.hypot(x - vertex.x, y - vertex.y);
      return { x: (x - vertex.x) / far, y: (y - vertex.y) / far };
    });
    const direction = { x: unit[0].x + unit[1].x, y: unit[0].y + unit[1].y };
    return [60, 45, 30, 20].map(reach => away(vertex, direction, reach)).find(({ place, inside }) => inside(place(1)))?.place(1) ?? vertex;
  };
  const perpendicular = () => {
    const vertex = centre('#init-blue'), other = centre('#init-black');
    const { place, inside } = away(vertex, { x: other.y - vertex.y, y: vertex.x - other.x });
    return inside(place(1)) ? place(1) : place(-1);
  };
  const nudge = (shape, way) => dragTo(centre(shape), {
    x: centre(shape).x + ({ left: -20, right: 20 }[way] ?? 0), y: centre(shape).y + ({ up: -20, down: 20 }[way] ?? 0),
  });
  const dragShape = selector => () => inTurn(() => one(selector).getAttribute('transform') ? null : nudge(one(selector), said(/(left|right|up|down)/)[0]), submit);
  const pie = () => {
    const items = all('#divWheel text'), open = items.some(item => text(item) !== '+' && target(item));
    return click(labelled('#divWheel text', open ? quoted(0) : '+'))();
  };
  const guess = () => {
    const [, low] = /higher than (\d)/.exec(text(one('#higher:not(.hide)') ?? one('#tt'))) ?? [];
    const [, high] = /lower than (\d)/.exec(text(one('#lower:not(.hide)') ?? one('#tt'))) ?? [];
    return inTurn(fill('#tt', low ? Number(low) + 1 : high ? Number(high) - 1 : 4), submit);
  };
  // A menu opens when the pointer rests on it; a click would select it.
  const hover = element => {
    const at = target(element);
    return at && seen.at() !== `${at.x},${at.y}` ? { action: 'move_to', at } : wait(400);
  };
  const menuPath = () => {
    const items = said(/^Select (.*)$/)[0].split('>').map(name => labelled('#menu li > div', name));
    const last = items.at(-1);
    if (last) return click(last)();
    return hover(items.findLast(item => item));
  };
  const table = {
    'ascending-numbers': () => {
      // The numbers vanish with the first click; a person remembers where they were.
      const numbers = all('svg text'), hidden = all('svg rect').toSorted((a, b) => a.dataset.index - b.dataset.index);
      return click(numbers.find(number => text(number) === '1') ?? hidden[0])();
    },
    'bisect-angle': putPoint(bisector),
    'button-delay': () => {
      if (buttonsPushed.length === 0) return click('#subbtn')();
      const rest = Number(said(/wait (\d+) seconds/)[0]) * 1000 - (Date.now() - currentTime);
      return rest > 150 ? wait(Math.round(rest)) : click('#subbtn2')();
    },
    'buy-ticket': () => {
      const minutes = flight => text(flight.querySelector('.time-duration')).match(/\d+/g).reduce((sum, part) => sum * 60 + Number(part), 0);
      const price = flight => Number(text(flight.querySelector('.buy-ticket')).match(/\d+/)[0]);
      const [order, what] = said(/the (cheapest|shortest|longest|most expensive) (cost|duration)/);
      const sorted = all('.flight').toSorted((a, b) => what === 'cost' ? price(a) - price(b) : minutes(a) - minutes(b));
      return click(sorted.at(/cheapest|shortest/.test(order) ? 0 : -1).querySelector('.buy-ticket'))();
    },
    'choose-date': dates, 'choose-date-easy': dates, 'choose-date-medium': dates, 'choose-date-nodelay': dates,
    'choose-list': () => inTurn(choose('#options', said(/^Select (.*) from the list/)[0]), click('#area button')),
    'circle-center': putPoint(() => centre('circle.black-circle')),
    'click-button': () => click(labelled('#area button', quoted(0)))(),
    'click-button-sequence': () => click(buttonsPushed.length === 0 ? '#subbtn' : '#subbtn2')(),
    'click-checkboxes': boxes(name => named(said(/^Select (.*) and click/)[0]).includes(name)),
    'click-checkboxes-large': boxes(name => named(said(/^Select (.*) and click/)[0]).includes(name)),
    'click-checkboxes-soft': boxes(name => {
      const wanted = named(said(/similar to (.*) and click/)[0]);
      return SYNONYMS.some(words => words.includes(name) && words.some(word => wanted.includes(word)));
    }),
    'click-checkboxes-transfer': boxes(name => named(said(/^Select (.*) and click/)[0]).includes(name)),
    'click-collapsible': () => inTurn(all('.ui-accordion-header-active').length === 0 && click('.ui-accordion-header'), submit),
    'click-collapsible-2': links('.ui-accordion-header', 'ui-accordion-header-active'),
    'click-collapsible-2-nodelay': links('.ui-accordion-header', 'ui-accordion-header-active'),
    'click-collapsible-nodelay': () => table['click-collapsible'](),
    'click-color': () => click(all('#area .color').find(box => box.style.backgroundColor === said(/the (\S+) colored/)[0]))(),
    'click-dialog': () => click('.ui-dialog-titlebar-close')(),
    'click-dialog-2': () => click(quoted(0) === 'x' ? '.ui-dialog-titlebar button' : labelled('.ui-dialog-buttonset button', quoted(0)))(),
    'click-link': () => click(labelled('.alink', quoted(0)))(),
    'click-menu': menuPath,
    'click-menu-2': () => {
      const icon = one('#query .ui-icon')?.className;
      const items = all('#menu li').filter(item => !item.querySelector('ul'));
      const item = items.find(item => icon ? item.querySelector('.ui-icon').className === icon : text(item) === quoted(1));
      if (visible(item)) return click(item)();
      return visible(one('#menu')) ? hover(item.parentElement.closest('li').querySelector('div')) : click('#open-menu')();
    },
    'click-option': () => inTurn(check(labelled('#area label', said(/^Select (.*) and click/)[0]).querySelector('input')), submit),
    'click-pie': pie, 'click-pie-nodelay': pie,
    'click-scroll-list': () => {
      const names = `, ${said(/^Select (.*) from the scroll list/)[0]}, `, options = all('#options option');
      const wanted = options.filter(option => names.includes(`, ${option.text}, `));
      const clean = options.some(option => option.selected) && options.every(option => !option.selected || wanted.includes(option));
      if (!clean) return click(wanted[0])();
      return inTurn(click(wanted.find(option => !option.selected), { modifiers: ['ctrl'] }), click('#area button'));
    },
    'click-shades': () => {
      const hue = box => ['red', 'green', 'blue'][getComputedStyle(box).backgroundColor.match(/\d+/g).slice(0, 3).map(Number)
        .reduce((best, part, index, parts) => part > parts[best] ? index : best, 0)];
      const wrong = all('#area span').find(box => (hue(box) === said(/shades of (\w+)/)[0]) !== box.classList.contains('selected'));
      return inTurn(click(wrong), click('#submit'));
    },
    'click-shape': () => inTurn(...shapesLike(said(/^Click on an? (.*)$/)[0]).map(shape => click(shape))),
    'click-tab': () => click(labelled('.ui-tabs-anchor', said(/on (.*)\.$/)[0]))(),
    'click-tab-2': links('li.ui-tab', 'ui-tabs-active'), 'click-tab-2-easy': links('li.ui-tab', 'ui-tabs-active'),
    'click-tab-2-hard': links('li.ui-tab', 'ui-tabs-active'), 'click-tab-2-medium': links('li.ui-tab', 'ui-tabs-active'),
    'click-test': submit,
    'click-test-2': () => click(labelled('#area button', said(/button (\w+)/)[0]))(),
    'click-test-transfer': () => click(labelled('#area button', said(/button (\w+)/)[0]))(),
    'click-widget': () => click(`#area [data-type="${quoted(0)}"]`)(),
    'copy-paste': () => inTurn(copyTo('#to-copy', '#answer-input'), submit),
    'copy-paste-2': () => inTurn(copyTo('#text-' + said(/the (\d)/)[0], '#answer-input'), submit),
    'count-shape': () => click(labelled('#count-buttons button', String(shapesLike(said(/^How many (.*)s are/)[0]).length)))(),
    'drag-box': () => {
      const box = selector => one(selector).getBoundingClientRect(), small = box('#draggableSmall'), large = box('#draggableLarge');
      const inside = small.left > large.left + 1 && small.right < large.right - 1 && small.top > large.top + 1 && small.bottom < large.bottom - 1;
      return inTurn(!inside && dragTo(centre('#draggableSmall'), centre('#draggableLarge')), submit);
    },
    'drag-circle': dragShape('circle'), 'drag-single-shape': dragShape('.black-shape'),
    'email-inbox': inbox, 'email-inbox-delete': inbox, 'email-inbox-forward': inbox, 'email-inbox-forward-nl': annotated,
    'email-inbox-forward-nl-turk': annotated, 'email-inbox-important': inbox, 'email-inbox-nl-turk': annotated,
    'email-inbox-noscroll': inbox, 'email-inbox-reply': inbox, 'email-inbox-star-reply': inbox,
    'enter-date': () => inTurn(fillParts('#tt', said(/(\d\d\/\d\d\/\d{4})/)[0].replaceAll('/', '')), submit),
    'enter-password': () => inTurn(fill('#password', quoted(0)), fill('#verify', quoted(0)), submit),
    'enter-text': enter(() => quoted(0)),
    'enter-text-2': enter(() => said(/(upper)/).length ? quoted(0).toUpperCase() : quoted(0).toLowerCase()),
    'enter-text-dynamic': enter(() => quoted(0)),
    'enter-time': () => {
      const [hour, minute, half] = said(/(\d+):(\d\d) ([AP]M)/);
      return inTurn(fillParts('#tt', hour.padStart(2, '0') + minute + half), submit);
    },
    'find-greatest': () => {
      // A person would turn the cards and remember.
      const cards = all('.card'), best = cards.toSorted((a, b) => b.textContent - a.textContent)[0];
      return inTurn(best.classList.contains('hidden') && click(best), click('#submit'));
    },
    'find-midpoint': putPoint(() => {
      const [a, b] = all('.black-circle').map(point => centre(point));
      return { x: (a.x + b.x) / 2, y: (a.y + b.y) / 2 };
    }),
    'find-word': () => inTurn(fill('#answer-input', text(one('#area p')).split(' ')[said(/the (\d+)/)[0] - 1].replace(/[^a-zA-Z]/g, '')), submit),
    'focus-text': () => click('#tt')(),
    'focus-text-2': () => click('#tt' + said(/the (\d)/)[0])(),
    'form-sequence': () => inTurn(slide('#slider', Number(said(/^Select (-?\d+)/)[0])), check('#checkbox-' + said(/the (\d)/)[0]), submit),
    'form-sequence-2': () => {
      const [radio, box] = said(/the (\d)\w\w radio.*the (\d)\w\w textbox/);
      return inTurn(check(`input[type=radio][value="${radio}"]`), fill('#input-' + box, quoted(0)), submit);
    },
    'form-sequence-3': () => {
      const wanted = said(/^Choose (.*) from the dropdown/)[0], open = one('.selectric-open');
      const chosen = text(one('.selectric .label')) === wanted;
      return inTurn(!chosen && click(open ? labelled('.selectric-items li', wanted) : '.selectric'), click(labelled('#buttons button', quoted(0))));
    },
    'generate-number': () => {
      const number = Number(text(one('#display-number')) || NaN), [word, bound] = said(/(less|greater|odd|even)(?: than (\d+))?/);
      const good = { less: number < bound, greater: number > bound, odd: number % 2 === 1, even: number % 2 === 0 }[word];
      return click(good ? '#submit' : '#generate')();
    },
    'grid-coordinate': () => click(document.getElementById(said(/coordinate (\(.*\))/)[0]))(),
    'guess-number': guess,
    'highlight-text': () => highlight(one('#randomText')),
    'highlight-text-2': () => highlight(all('#randomText p')[said(/the (\d)/)[0] - 1]),
    'identify-shape': () => {
      const { kind, name } = shapeOf(one('#area_svg > *'));
      return click(`#area-buttons [data-type="${kind === 'shape' ? name : kind}"]`)();
    },
    'login-user': login, 'login-user-popup': login,
    'multi-layouts': movie, 'multi-orderings': movie,
    'navigate-tree': () => {
      const wanted = labelled('#tree span', quoted(0));
      return click(wanted ?? all('#tree li.expandable > .folder').find(visible))();
    },
    'number-checkboxes': () => {
      const wanted = PATTERNS[quoted(0)].flat();
      return inTurn(...all('#checkboxes input').map((box, index) => check(box, wanted[index] === 1)), submit);
    },
    'odd-or-even': () => inTurn(...all('.row').map(row => {
      const button = row.querySelector(Number(text(row.querySelector('.display-number'))) % 2 ? '.odd' : '.even');
      return !button.classList.contains('selected') && click(button);
    }), click('#submit')),
    'order-food': () => {
      const [names] = said(/^Order one of each item: (.*)$/), [count, kind] = said(/^Order (\d+) items that are (.*)$/);
      const items = all('.food-item').filter(item => names ? named(names).includes(text(item.querySelector('.item-name'))) : item.querySelector(`img[alt="${kind}"]`));
      const needed = names ? items : items.slice(0, 1);
      return inTurn(...needed.map(item => text(item.querySelector('.quantity')) !== (count ?? '1') && click(item.querySelector('.add'))), click('#submit-order button'));
    },
    'phone-book': () => {
      const [name, what] = said(/^Find (.*) in the contact book and click on their (\w+)/);
      return click(text(one('#contact .name')) === name ? '#contact a.' + what : '#pagination .next a')();
    },
    'read-table': enter(() => valueOf(said(/value of (.*) into/)[0])),
    'read-table-2': () => inTurn(...[1, 2].map(n => fill('#tt' + n, valueOf(text(one('#ll' + n)).replace(/:$/, '')))), submit),
    'resize-textarea': () => {
      const [what, way] = said(/the (width|height) is (smaller|larger)/), handle = centre('.ui-resizable-se'), by = way === 'larger' ? 15 : -15;
      const moved = $('#tt').resizable('instance').originalSize;
      return inTurn(!moved && dragTo(handle, { x: handle.x + (what === 'width' ? by : 0), y: handle.y + (what === 'height' ? by : 0) }), click('#submit'));
    },
    'right-angle': putPoint(perpendicular),
    'scroll-text': () => {
      const last = one('#text-area').value.trim().split(/\s+/).at(-1).replace(/[^a-zA-Z0-9]/g, '');
      return one('#answer-input').value === last ? submit() : inTurn(toEnd('#text-area'), fill('#answer-input', last));
    },
    'scroll-text-2': () => inTurn(toEnd('#text-area', said(/(bottom)/).length > 0), submit),
    'search-engine': () => {
      const place = said(/the (\d+)\w\w search/)[0] - 1, page = String(Math.floor(place / 3) + 1), results = all('#page-content a');
      const open = one('#pagination .active');
      return inTurn(fill('#search-text', quoted(0)), (results.length === 0 || !open) && click('#search'),
        () => click(text(open) === page ? results[place % 3] : labelled('#pagination a', page))());
    },
    'sign-agreement': () => {
      if (said(/(Click the cancel)/).length) return click('#cancel')();
      const button = quoted(1) === 'Agree' ? '#agree' : '#cancel';
      return inTurn(one('#name').disabled && toEnd('#text-area'), fill('#name', quoted(0)), click(button));
    },
    'simple-algebra': answer(() => {
      const parts = text(one('#math-problem')).split(' '), [left, sign, right, , sum] = parts, n = Number(left === 'x' ? right : left);
      return sign === '+' ? sum - n : left === 'x' ? Number(sum) + n : n - sum;
    }),
    'simple-arithmetic': answer(() => {
      const [a, sign, b] = text(one('#math-problem')).split(' ');
      return { '+': Number(a) + Number(b), '-': a - b, x: a * b }[sign];
    }),
    'social-media': () => {
      const [user, label] = said(/user (\S+), click on the "(.*)" button/);
      const names = { 'Share via DM': 'share', 'Copy link to Tweet': 'copy', 'Embed Tweet': 'embed', Mute: 'menu-user', Block: 'block-user' };
      const media = post(user)[0], button = media.querySelector('.' + (names[label] ?? label.toLowerCase()));
      return click(visible(button) ? button : media.querySelector('.more'))();
    },
    'social-media-all': () => posts(quoted(0), said(/posts by (\S+) and/)[0], Infinity),
    'social-media-some': () => posts(quoted(0), said(/by (\S+) and/)[0], Number(said(/on (\d+) post/)[0])),
    'terminal': () => {
      if (document.activeElement !== one('#terminal-target')) return click('#terminal')();
      const lines = all('#terminal-contents > div'), asked = lines.findIndex(line => text(line) === 'user$ ls');
      if (asked < 0) return type('ls\n');
      const files = text(lines[asked + 1]).split(' '), [ending] = said(/extension (\.\S+)/);
      return type(`rm ${files.find(file => ending ? file.endsWith(ending) : !file.includes('.'))}\n`);
    },
    'text-transform': enter(() => one('#captcha').textContent.trim()),
    'unicode-test': () => click(labelled('#area button', quoted(0)))(),
    'use-autocomplete': complete, 'use-autocomplete-nodelay': complete,
    'use-slider': () => inTurn(slide('#slider', Number(said(/^Select (-?\d+)/)[0])), submit),
    'use-slider-2': () => inTurn(...JSON.parse(said(/(\[.*\])/)[0]).map((wanted, index) => slide('#slider-' + (index + 1), wanted)), submit),
    'use-spinner': () => {
      const ahead = Number(said(/^Select (-?\d+)/)[0]) - Number(one('#spinner').value);
      return inTurn(ahead && click(ahead > 0 ? '.ui-spinner-up' : '.ui-spinner-down'), submit);
    },
    'visual-addition': answer(() => all('.addition-block').length),
  };
  function valueOf(name) {
    return text(all('#tab tr').find(row => text(row.cells[0]) === name).cells[1]);
  }
  function highlight(paragraph) {
    const plain = words => words.replace(/\s/g, '');
    return plain(String(getSelection())) === plain(paragraph.textContent) ? submit() : click(paragraph, { count: 3 })();
  }
  // What moves is waited for.
  const moving = () => typeof $ === 'function' && $(':animated').length > 0;
  return task => table[task] && moving() ? wait(200) : table[task]?.() ?? null;
};
