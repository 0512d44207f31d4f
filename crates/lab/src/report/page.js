// Draws a plot when it first comes into view: a page may have a hundred.
"use strict";
function draw(box) {
  const it = JSON.parse(document.getElementById(box.id + "-data").textContent);
  Plotly.newPlot(box, it.data, it.layout, it.config);
}
const boxes = document.querySelectorAll(".plot");
if (location.hash === "#all" || !("IntersectionObserver" in window)) {
  boxes.forEach(draw);
} else {
  const seen = new IntersectionObserver((entries) => {
    for (const entry of entries) {
      if (entry.isIntersecting) {
        seen.unobserve(entry.target);
        draw(entry.target);
      }
    }
  }, { rootMargin: "400px" });
  boxes.forEach((box) => seen.observe(box));
}
