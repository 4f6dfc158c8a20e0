"""The product's pages in a real browser: the console of the embedded LogHub, and the agent's page.

``python -m tests.browser.chromium`` installs the browser; ``make test`` calls it. With ``PRODUCER_SCREENSHOTS=1`` the
tests also write the documents' screenshots into ``docs``.
"""
