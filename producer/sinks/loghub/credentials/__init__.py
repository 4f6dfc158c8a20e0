"""Credentials by name, from where Aliyun's own tools look for them, and the cache that refreshes any provider's.

``names`` turns the name in a configuration into one of ``sources``: environment variables, profiles in files, the
metadata service of an ECS instance, or STS. The configuration keeps the name, so a pickled producer contains no secret.

The package ``alibabacloud-credentials`` is not used. With it come 20 packages of 15 MB, among them ``aiohttp`` and
``apscheduler``, and each of its providers has threads of its own. Here the same sources are small files over the
transport of LogHub's requests, which bounds time and size of each answer. An object of that package can be passed as a
provider (:func:`.names.provider_of`).
"""
