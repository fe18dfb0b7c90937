// Formulas that stand by themselves ($$ … $$ in the pages), set by KaTeX.
for (const place of document.querySelectorAll("div.arithmatex")) {
  const formula = place.textContent.trim().replace(/^\\\[|\\\]$/g, "");
  katex.render(formula, place, { displayMode: true, throwOnError: false });
}
