"""The pages of the product, opened in a real browser: the console of the embedded LogHub, and the agent's.

``python -m tests.browser.chromium`` brings the browser, ``make test`` calls it. With ``PRODUCER_SCREENSHOTS=1`` the
tests also write the pictures of the documents, into ``docs``.
"""
