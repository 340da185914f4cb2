// Search works where the site is read from files: browsers start no worker there, so the theme's runs in a frame that
// nobody sees. Elsewhere this does nothing. The name is the one by which the theme's offline plugin finds it.
"use strict";

if (location.protocol === "file:") {
  window.IFrameWorker = class extends EventTarget {
    constructor(url) {
      super();
      const frame = Object.assign(document.createElement("iframe"), { hidden: true });
      document.body.append(frame);
      this.inside = frame.contentWindow;
      this.inside.postMessage = (data) => this.tell(data);
      const script = Object.assign(this.inside.document.createElement("script"), { src: new URL(url, document.baseURI) });
      this.isThere = new Promise((resolve) => script.addEventListener("load", resolve));
      this.inside.document.body.append(script);
    }

    tell(data) {
      const event = new MessageEvent("message", { data });
      this.dispatchEvent(event);
      if (this.onmessage) this.onmessage(event);
    }

    postMessage(data) {
      this.isThere.then(() => this.inside.dispatchEvent(new MessageEvent("message", { data })));
    }

    terminate() {
      this.inside.frameElement.remove();
    }
  };
  window.Worker = window.IFrameWorker;
}
