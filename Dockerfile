# Two images from one file: `docker build --target controller .` and `docker build --target dashboard .`. What goes in
# is what requirements.lock has, by hash; the controller has neither Streamlit nor the simulator's Envoy.
ARG PYTHON=python:3.11.14-slim-bookworm

FROM ${PYTHON} AS build
ARG EXTRA=kubernetes
WORKDIR /src
COPY pyproject.toml requirements.lock README.md LICENSE ./
COPY image/ image/
COPY autoscaler/ autoscaler/
COPY dashboard/ dashboard/
COPY policies/ policies/
RUN python -m venv /opt/build && python -m venv /opt/lora-autoscaler
RUN sed -e '/--hash/d' -e 's/ \\$//' requirements.lock > constraints.txt
RUN /opt/build/bin/pip install --quiet --dry-run --ignore-installed --report tools.json -c constraints.txt hatchling
RUN python image/locked.py tools.json requirements.lock > tools.lock
RUN /opt/build/bin/pip install --quiet --require-hashes -r tools.lock
RUN /opt/build/bin/pip wheel --quiet --no-deps --no-build-isolation --wheel-dir dist .
RUN /opt/lora-autoscaler/bin/pip install --quiet --dry-run --report plan.json -c constraints.txt "lora-autoscaler[${EXTRA}] @ file://$(ls -d $PWD/dist/*.whl)"
RUN python image/locked.py plan.json requirements.lock > image.lock
RUN /opt/lora-autoscaler/bin/pip install --quiet --require-hashes -r image.lock
RUN /opt/lora-autoscaler/bin/pip install --quiet --no-deps dist/*.whl
RUN /opt/lora-autoscaler/bin/pip check
RUN /opt/lora-autoscaler/bin/pip uninstall --quiet --yes pip setuptools

FROM ${PYTHON} AS runtime
ENV PATH=/opt/lora-autoscaler/bin:$PATH PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1 HOME=/tmp
COPY --from=build /opt/lora-autoscaler /opt/lora-autoscaler
USER 65532:65532

FROM runtime AS dashboard
EXPOSE 8501
CMD ["sh", "-c", "exec python -m streamlit run \"$(python -c 'import dashboard, os; print(os.path.dirname(dashboard.__file__))')/app.py\" --server.port 8501 --server.address 0.0.0.0 --server.headless true --browser.gatherUsageStats false"]

FROM runtime AS controller
EXPOSE 8080
ENTRYPOINT ["lora-autoscaler"]
CMD ["run", "--policies", "/etc/lora-autoscaler/policies"]
